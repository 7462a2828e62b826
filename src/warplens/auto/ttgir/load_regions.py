"""Regions of loads: a warp continues after a load and waits where the value is first used.

The loads of one source line are one `load` region, up to and including the operation that first uses a loaded value, if
only arithmetic is in between. Otherwise they are two: `load issue`, and `load wait` at that operation.

If a load is used before the next one is issued, a mark between the two would keep them from overlapping. Such loads are
one region, named after both lines: `load attn.py:57-58`.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import re
from collections.abc import Callable
from dataclasses import dataclass

from warplens.auto.ttgir.operation_classes import classify, is_free, is_mark, is_open
from warplens.auto.ttgir.operation_tree import Op

_VALUE = re.compile(r"%[\w$.-]+")
_LIGHT = ("arith.", "math.", "ttg.local_alloc", "ttg.local_store", "tt.addptr", "tt.fp_to_fp", "tt.clampf")
"""Cheap operations that a region may include in addition to the wait."""

Group = list[int]
"""The indices of loads that are issued together."""


@dataclass(frozen=True)
class LoadRegion:
    """Operations [start, stop) as one region of kind `what`, named after the loads from `first` to `last`."""

    start: int
    stop: int
    what: str
    first: Op
    last: Op


def load_regions(ops: list[Op], same_line: Callable[[Op, Op], bool], cuts: set[int]) -> list[LoadRegion]:
    """The regions of a block's loads, none of which crosses a cut."""
    found: list[LoadRegion] = []
    block = _Loads(ops, cuts)
    for groups in block.joined(block.groups(same_line)):
        start, last = groups[0][0], groups[-1][-1]
        names = ops[start], ops[last]
        uses = [block.first_use(group) for group in groups]
        use = max((use for use in uses if use is not None), default=None)
        light = use is not None and ops[use].name.startswith(_LIGHT)
        if use is None or None in uses or not block.is_clear(last + 1, use):
            found.append(LoadRegion(start, last + 1, "load issue", *names))
            if use is not None and light:
                found.append(LoadRegion(use, use + 1, "load wait", *names))
        else:
            found.append(LoadRegion(start, use + 1 if light and use not in cuts else last + 1, "load", *names))
    return _without_repeated_waits(found)


class _Loads:
    """A block's loads, and where their values are used."""

    def __init__(self, ops: list[Op], cuts: set[int]) -> None:
        self.ops, self.cuts = ops, cuts
        opaque = [
            index in cuts or classify(op) is not None or is_open(op) or is_mark(op) for index, op in enumerate(ops)
        ]
        self._opaque = [0, *itertools.accumulate(opaque)]
        """The number of operations before each index that are more than arithmetic, or at a cut."""
        self._opens = [index for index, op in enumerate(ops) if is_open(op)]
        self._uses: dict[str, list[int]] = {}
        for index, op in enumerate(ops):
            for name in set(_VALUE.findall(_right(op))):
                self._uses.setdefault(name, []).append(index)

    def groups(self, same_line: Callable[[Op, Op], bool]) -> list[Group]:
        """Group consecutive loads of the same line."""
        groups: list[Group] = []
        for index, op in enumerate(self.ops):
            if (classify(op) or ("",))[0] == "loads":
                if groups and same_line(self.ops[groups[-1][-1]], op) and self._follows(groups[-1], index):
                    groups[-1].append(index)
                else:
                    groups.append([index])
        return groups

    def joined(self, groups: list[Group]) -> list[list[Group]]:
        """Join groups where the loads of one are used before the next is issued."""
        joined: list[list[Group]] = []
        for group in groups:
            before = joined[-1][-1] if joined else None
            if before is not None and self._follows(before, group[0]):
                use = self.first_use(before)
                if use is not None and use < group[0]:
                    joined[-1].append(group)
                    continue
            joined.append([group])
        return joined

    def is_clear(self, start: int, stop: int) -> bool:
        """Whether [start, stop) contains only arithmetic and no cut."""
        return start >= stop or self._opaque[start] == self._opaque[stop]

    def first_use(self, group: Group) -> int | None:
        """The first operation of the block that needs a loaded value; free operations only pass it on."""
        last = group[-1]
        opens = bisect.bisect_right(self._opens, last)
        stop = self._opens[opens] if opens < len(self._opens) else len(self.ops)
        known: set[str] = set()
        uses: list[int] = []

        def add(names: set[str], after: int) -> None:
            for name in names - known:
                known.add(name)
                places = self._uses.get(name, [])
                for place in places[bisect.bisect_right(places, after) :]:
                    heapq.heappush(uses, place)
                    if not is_free(self.ops[place]):
                        break  # nothing beyond it can come first

        add({name for index in group for name in _results(self.ops[index])}, last)
        while uses:
            index = heapq.heappop(uses)
            if index >= stop:
                return None
            if not is_free(self.ops[index]):
                return index
            add(_results(self.ops[index]), index)
        return None

    def _follows(self, group: Group, index: int) -> bool:
        return index not in self.cuts and self.is_clear(group[-1] + 1, index)


def _results(op: Op) -> set[str]:
    left, equals, _ = op.header.partition(" = ")
    return set(_VALUE.findall(left)) if equals and left.startswith("%") else set()


def _right(op: Op) -> str:
    left, equals, right = op.header.partition(" = ")
    return right if equals and left.startswith("%") else op.header


def _without_repeated_waits(found: list[LoadRegion]) -> list[LoadRegion]:
    """Drop waits at an operation that an earlier region already contains."""
    covered: set[int] = set()
    regions = []
    for region in found:
        if region.what != "load wait" or region.start not in covered:
            regions.append(region)
            covered.update(range(region.start, region.stop))
    return regions
