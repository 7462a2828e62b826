"""Blocks of marks that are always passed one after the other, so that one store can serve all of them."""

from __future__ import annotations

from warplens.ptx.control_flow import Flow
from warplens.weave.mark_sites import Block


def stretches(blocks: list[Block], flow: Flow, most: int) -> list[list[Block]]:
    """The blocks in runs of at most `most` slots. Within a run each block is followed by the next before any other mark
    is passed, and the next is never passed without it: what one of them records can wait for the last."""
    places = [[flow.piece(block.sites[end].place.node) for end in (0, -1)] for block in blocks]
    starts = {first: number for number, (first, _) in reversed(list(enumerate(places))) if first is not None}
    after = flow.postdominators()
    following: dict[int, int] = {}
    for number, (_, last) in enumerate(places):
        if number + 1 < len(blocks) and places[number + 1][0] == last:
            following[number] = number + 1
            continue
        other = _next(last, starts, flow)
        if last is not None and other is not None and _in_turn(last, places[other][0], flow, after):
            following[number] = other
    heads = [number for number in range(len(blocks)) if number not in following.values()]
    return [run for head in heads for run in _runs(head, following, blocks, most)]


def _next(last: int | None, starts: dict[int, int], flow: Flow) -> int | None:
    """The block whose marks are the next to be passed after a piece, if only one can be; `starts` has the first block
    of each piece that one begins in."""
    if last is None:
        return None
    ways = flow.ways(flow.pieces[last].follow, sum(1 << first for first in starts)) | {last}
    found = {starts[piece] for way in ways for piece in flow.pieces[way].follow if piece in starts}
    return found.pop() if len(found) == 1 else None


def _in_turn(one: int, other: int | None, flow: Flow, after: list[int]) -> bool:
    """Whether every way through one of two pieces leads through the other, the one in turn with the other."""
    if other is None or one == other or not after[one] >> other & 1:
        return False
    without = flow.ways([0], 1 << one)
    again = flow.ways(flow.pieces[one].follow, 1 << other), flow.ways(flow.pieces[other].follow, 1 << one)
    return other not in without and one not in again[0] and other not in again[1]


def _runs(head: int, following: dict[int, int], blocks: list[Block], most: int) -> list[list[Block]]:
    runs: list[list[Block]] = [[]]
    at: int | None = head
    while at is not None:
        if runs[-1] and sum(block.slots for block in [*runs[-1], blocks[at]]) > most:
            runs.append([])
        runs[-1].append(blocks[at])
        at = following.get(at)
    return runs
