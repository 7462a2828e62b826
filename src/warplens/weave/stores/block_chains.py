"""Chains of mark blocks that always execute one after the other, so that one store can serve the whole chain."""

from __future__ import annotations

from collections.abc import Container

from warplens.ptx.control_flow import ControlFlow
from warplens.weave.mark_sites import MarkBlock


def chain_blocks(blocks: list[MarkBlock], flow: ControlFlow, max_slots: int) -> list[list[MarkBlock]]:
    """Divide the mark blocks into chains of at most `max_slots` slots.

    Within a chain, each block is followed by the next before any other mark executes, and the next never executes
    without it. The records of all but the last block can therefore wait for the last one.
    """
    if len(blocks) == 1:
        return [blocks]
    places = [[flow.block_of(block.sites[end].position.node) for end in (0, -1)] for block in blocks]
    starts = {first: number for number, (first, _) in reversed(list(enumerate(places))) if first is not None}
    # For each basic block, the first one with marks through which every path to the end leads.
    next_marked = flow.postdominators.nearest(starts)
    following: dict[int, int] = {}
    for number, (_, last) in enumerate(places):
        if number + 1 < len(blocks) and places[number + 1][0] == last:
            following[number] = number + 1
        elif last is not None and next_marked[last] >= 0 and _alternate(last, next_marked[last], starts, flow):
            following[number] = starts[next_marked[last]]
    followers = set(following.values())
    heads = [number for number in range(len(blocks)) if number not in followers]
    return [chain for head in heads for chain in _chains_from(head, following, blocks, max_slots)]


def _alternate(one: int, other: int, starts: Container[int], flow: ControlFlow) -> bool:
    """Whether basic blocks `one` and `other` execute in alternation, without a mark between them.

    `other` is on every path from `one` to the end, and `starts` are the blocks in which marks begin.
    """
    if not flow.dominators.strictly_dominates(one, other):
        return False
    between: set[int] = set()
    work = list(flow.blocks[one].successors)
    while work:
        number = work.pop()
        if number == one or (number in starts and number != other):
            return False
        if number != other and number not in between:
            between.add(number)
            work += flow.blocks[number].successors
    # A block that leads to `other`, but does not lie between the two, comes after `other`: `other` would repeat.
    backwards: set[int] = set()
    work = list(flow.predecessors[other])
    while work:
        number = work.pop()
        if number != one and number not in backwards:
            if number not in between:
                return False
            backwards.add(number)
            work += flow.predecessors[number]
    return True


def _chains_from(
    head: int, following: dict[int, int], blocks: list[MarkBlock], max_slots: int
) -> list[list[MarkBlock]]:
    chains: list[list[MarkBlock]] = [[]]
    at: int | None = head
    used = 0
    while at is not None:
        slots = blocks[at].slots
        if chains[-1] and used + slots > max_slots:
            chains.append([])
            used = 0
        chains[-1].append(blocks[at])
        used += slots
        at = following.get(at)
    return chains
