"""Chains of mark blocks that always execute one after the other, so that one store can serve the whole chain."""

from __future__ import annotations

from warplens.ptx.control_flow import ControlFlow
from warplens.weave.mark_sites import MarkBlock


def chain_blocks(blocks: list[MarkBlock], flow: ControlFlow, max_slots: int) -> list[list[MarkBlock]]:
    """Divide the mark blocks into chains of at most `max_slots` slots.

    Within a chain, each block is followed by the next before any other mark executes, and the next never executes
    without it. The records of all but the last block can therefore wait for the last one.
    """
    places = [[flow.block_of(block.sites[end].position.node) for end in (0, -1)] for block in blocks]
    starts = {first: number for number, (first, _) in reversed(list(enumerate(places))) if first is not None}
    postdominators = flow.postdominators()
    following: dict[int, int] = {}
    for number, (_, last) in enumerate(places):
        if number + 1 < len(blocks) and places[number + 1][0] == last:
            following[number] = number + 1
            continue
        other = _only_next(last, starts, flow)
        if last is not None and other is not None and _alternate(last, places[other][0], flow, postdominators):
            following[number] = other
    heads = [number for number in range(len(blocks)) if number not in following.values()]
    return [chain for head in heads for chain in _chains_from(head, following, blocks, max_slots)]


def _only_next(last: int | None, starts: dict[int, int], flow: ControlFlow) -> int | None:
    """The mark block that executes next after basic block `last`, or None if several may.

    `starts` gives the first mark block that begins in each basic block.
    """
    if last is None:
        return None
    unmarked = flow.reachable(flow.blocks[last].successors, sum(1 << first for first in starts)) | {last}
    found = {starts[after] for block in unmarked for after in flow.blocks[block].successors if after in starts}
    return found.pop() if len(found) == 1 else None


def _alternate(one: int, other: int | None, flow: ControlFlow, postdominators: list[int]) -> bool:
    """Whether every path through basic block `one` leads through `other`, and the two execute in alternation."""
    if other is None or one == other or not postdominators[one] >> other & 1:
        return False
    without_one = flow.reachable([0], 1 << one)
    after_one = flow.reachable(flow.blocks[one].successors, 1 << other)
    after_other = flow.reachable(flow.blocks[other].successors, 1 << one)
    return other not in without_one and one not in after_one and other not in after_other


def _chains_from(
    head: int, following: dict[int, int], blocks: list[MarkBlock], max_slots: int
) -> list[list[MarkBlock]]:
    chains: list[list[MarkBlock]] = [[]]
    at: int | None = head
    while at is not None:
        if chains[-1] and sum(block.slots for block in [*chains[-1], blocks[at]]) > max_slots:
            chains.append([])
        chains[-1].append(blocks[at])
        at = following.get(at)
    return chains
