"""Regions around whole branches and loops, attributed to the source line of the branch or loop.

A region inside one basic block contains neither the jump that ends the block nor the records written there. A region
around the whole branch or loop contains both.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

from warplens.auto.ptx.extremes import Extremes
from warplens.auto.ptx.found_region import FoundRegion, Location
from warplens.auto.ptx.loop_regions import Loop
from warplens.auto.ptx.units import FunctionUnits


def branch_regions(
    code: FunctionUnits, loops: list[Loop], others: Iterable[FoundRegion], claimed: set[int]
) -> list[FoundRegion]:
    """A region for each branch and loop that control enters at the top and leaves at the bottom or by a return.

    Leaves out a region that would cross one of `others` or a hand-written mark, or that lies directly inside another
    one of the same line. Units in `claimed` belong to regions of other rules.
    """
    crossing, cuts, ends = _Crossing(others), sorted(code.cuts), _Ends(code)
    found: list[FoundRegion] = []
    widest: dict[Location | None, FoundRegion] = {}
    starts = {*_branches(code, claimed), *_loops(code, loops)}
    for begin, end, location in sorted(starts, key=lambda start: (start[0], -start[1])):
        region = _around(code, begin, ends.after(begin, end), location)
        if region is None or crossing.found(region):
            continue
        cut = bisect.bisect_right(cuts, region.begin)
        if cut < len(cuts) and cuts[cut] < region.ends[-1]:
            continue
        outer = widest.get(location)
        if outer is None or not holds(outer, region):
            found.append(region)
            if outer is None or region.ends[-1] > outer.ends[-1]:
                widest[location] = region
    return found


def holds(outer: FoundRegion, inner: FoundRegion) -> bool:
    """Whether `outer` encloses all gaps of `inner`."""
    first, last = min(*inner.begins, *inner.ends), max(*inner.begins, *inner.ends)
    return outer.begin <= first and last <= outer.ends[-1]


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


class _Ends:
    """Where the code that follows a branch is over: behind the last target of the jumps inside it."""

    def __init__(self, code: FunctionUnits) -> None:
        self._jumps = sorted(code.jumps)
        self._ends: dict[int, int] = {}
        for at in reversed(self._jumps):
            self._ends[at] = self.after(at, max([at + 1, *code.jumps[at]]), at + 1)

    def after(self, begin: int, end: int, start: int | None = None) -> int:
        """Extend [begin, end) until no jump inside leads forward out of it. Jumps before `start` are known to be in."""
        index = bisect.bisect_left(self._jumps, begin if start is None else start)
        while index < len(self._jumps) and self._jumps[index] < end:
            inner = self._ends[self._jumps[index]]
            end = max(end, inner)
            index = bisect.bisect_left(self._jumps, inner, index + 1)
        return end


def _around(code: FunctionUnits, begin: int, end: int, location: Location | None) -> FoundRegion | None:
    """A region over [begin, end); None if control enters or leaves elsewhere."""
    gaps = code.enclosed(begin, end, leaving=True)
    if gaps is None:
        return None
    first = code.units[begin]
    size = gaps[1] - gaps[0]
    return FoundRegion("lines", "line", (gaps[0],), (*code.returns(*gaps), gaps[1]), location, first.number, size=size)


class _Crossing:
    """Answers whether a region crosses one of many others."""

    def __init__(self, others: Iterable[FoundRegion]) -> None:
        known = [(region, sorted(region.gaps)) for region in others]
        # A region whose code is not laid out from its begins to its ends; there are hardly any.
        self._unordered = [r for r, gaps in known if min(r.begins) > gaps[0] or max(r.ends) < gaps[-1]]
        self._reach = Extremes([(gap, end) for _, gaps in known for gap in gaps for end in (gaps[0], gaps[-1])])
        self._divided = {(gaps[0], gaps[-1]) for _, gaps in known if len(gaps) > 2}

    def found(self, region: FoundRegion) -> bool:
        """Whether another region has a gap inside `region` without being enclosed by it."""
        begin, end = region.begin, region.ends[-1]
        return (
            not self._reach.within(begin + 1, end, begin, end + 1)
            or (begin, end) in self._divided
            or any(_crosses(region, other) for other in self._unordered)
        )


def _crosses(region: FoundRegion, other: FoundRegion) -> bool:
    """Whether `other` is partly inside and partly outside `region`, without enclosing it."""
    begin, end = region.begin, region.ends[-1]
    if min(other.begins) <= begin and max(other.ends) >= end:
        return any(begin < gap < end for gap in other.gaps)
    inside = {begin <= gap <= end for gap in other.gaps}
    apart = all(gap <= begin for gap in other.gaps) or all(gap >= end for gap in other.gaps)
    return len(inside) > 1 and not apart
