"""Regions around whole branches and loops, attributed to the source line of the branch or loop.

A region inside one basic block contains neither the jump that ends the block nor the records written there. A region
around the whole branch or loop contains both.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from warplens.auto.ptx.found_region import FoundRegion, Location
from warplens.auto.ptx.loop_regions import Loop
from warplens.auto.ptx.units import LEAVES, FunctionUnits


def branch_regions(
    code: FunctionUnits, loops: list[Loop], others: Iterable[FoundRegion], claimed: set[int]
) -> list[FoundRegion]:
    """A region for each branch and loop that control enters at the top and leaves at the bottom or by a return.

    Leaves out a region that would cross one of `others` or a hand-written mark, or that lies directly inside another
    one of the same line. Units in `claimed` belong to regions of other rules.
    """
    known = list(others)
    found: list[FoundRegion] = []
    starts = {*_branches(code, claimed), *_loops(code, loops)}
    for begin, end, location in sorted(starts, key=lambda start: (start[0], -start[1])):
        region = _around(code, begin, end, location)
        if region is None or any(_crosses(region, other) for other in known):
            continue
        if any(region.begin < cut < region.ends[-1] for cut in code.cuts):
            continue
        if not any(one.location == location and holds(one, region) for one in found):
            found.append(region)
    return found


def holds(outer: FoundRegion, inner: FoundRegion) -> bool:
    """Whether `outer` encloses all gaps of `inner`."""
    return outer.begin <= min(inner.gaps) and max(inner.gaps) <= outer.ends[-1]


def _branches(code: FunctionUnits, claimed: set[int]) -> Iterator[tuple[int, int, Location | None]]:
    for at, targets in code.jumps.items():
        unit = code.units[at]
        if code.falls_through(unit) and all(target > at for target in targets) and at not in claimed:
            yield at, at + 1, unit.location


def _loops(code: FunctionUnits, loops: list[Loop]) -> Iterator[tuple[int, int, Location | None]]:
    for loop in loops:
        blocks = [code.blocks[number] for number in loop.body]
        last = code.units[code.blocks[loop.latches[-1]].stop - 1]
        yield min(block.start for block in blocks), max(block.stop for block in blocks), last.location


def _around(code: FunctionUnits, begin: int, end: int, location: Location | None) -> FoundRegion | None:
    """A region from `begin` to the last target of the jumps inside it; None if control enters or leaves elsewhere."""
    at = begin
    while at < end:
        end = max([end, *code.jumps.get(at, ())])
        at += 1
    gaps = code.enclosed(begin, end, leaving=True)
    if gaps is None:
        return None
    leaves = (unit.at for unit in code.units[gaps[0] : gaps[1]] if unit.opcode in LEAVES)
    first = code.units[begin]
    size = gaps[1] - gaps[0]
    return FoundRegion("lines", "line", (gaps[0],), (*leaves, gaps[1]), location, first.number, size=size)


def _crosses(region: FoundRegion, other: FoundRegion) -> bool:
    """Whether `other` is partly inside and partly outside `region`, without enclosing it."""
    begin, end = region.begin, region.ends[-1]
    if min(other.begins) <= begin and max(other.ends) >= end:
        return any(begin < gap < end for gap in other.gaps)
    inside = {begin <= gap <= end for gap in other.gaps}
    apart = all(gap <= begin for gap in other.gaps) or all(gap >= end for gap in other.gaps)
    return len(inside) > 1 and not apart
