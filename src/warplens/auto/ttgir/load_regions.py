"""Regions of loads: a warp continues after a load and waits where the value is first used.

The loads of one source line are one `load` region, up to and including the operation that first uses a loaded value, if
only arithmetic is in between. Otherwise they are two: `load issue`, and `load wait` at that operation.

If a load is used before the next one is issued, a mark between the two would keep them from overlapping. Such loads are
one region, named after both lines: `load attn.py:57-58`.
"""

from __future__ import annotations

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
    for groups in _joined(ops, _groups(ops, same_line, cuts), cuts):
        start, last = groups[0][0], groups[-1][-1]
        names = ops[start], ops[last]
        uses = [_first_use(ops, group) for group in groups]
        use = max((use for use in uses if use is not None), default=None)
        light = use is not None and ops[use].name.startswith(_LIGHT)
        if use is None or None in uses or not _clear(ops, last + 1, use, cuts):
            found.append(LoadRegion(start, last + 1, "load issue", *names))
            if use is not None and light:
                found.append(LoadRegion(use, use + 1, "load wait", *names))
        else:
            found.append(LoadRegion(start, use + 1 if light and use not in cuts else last + 1, "load", *names))
    return _without_repeated_waits(found)


def _groups(ops: list[Op], same_line: Callable[[Op, Op], bool], cuts: set[int]) -> list[Group]:
    """Group consecutive loads of the same line."""
    groups: list[Group] = []
    for index, op in enumerate(ops):
        if (classify(op) or ("",))[0] == "loads":
            if groups and same_line(ops[groups[-1][-1]], op) and _follows(ops, groups[-1], index, cuts):
                groups[-1].append(index)
            else:
                groups.append([index])
    return groups


def _joined(ops: list[Op], groups: list[Group], cuts: set[int]) -> list[list[Group]]:
    """Join groups where the loads of one are used before the next is issued."""
    joined: list[list[Group]] = []
    for group in groups:
        before = joined[-1][-1] if joined else None
        if before is not None and _follows(ops, before, group[0], cuts):
            use = _first_use(ops, before)
            if use is not None and use < group[0]:
                joined[-1].append(group)
                continue
        joined.append([group])
    return joined


def _follows(ops: list[Op], group: Group, index: int, cuts: set[int]) -> bool:
    return index not in cuts and _clear(ops, group[-1] + 1, index, cuts)


def _clear(ops: list[Op], start: int, stop: int, cuts: set[int]) -> bool:
    """Whether [start, stop) contains only arithmetic and no cut."""
    return not any(
        index in cuts or classify(ops[index]) is not None or is_open(ops[index]) or is_mark(ops[index])
        for index in range(start, stop)
    )


def _first_use(ops: list[Op], group: Group) -> int | None:
    """The first operation of the block that needs a loaded value; free operations only pass it on."""
    values = {name for index in group for name in _results(ops[index])}
    for index in range(group[-1] + 1, len(ops)):
        op = ops[index]
        if is_open(op):
            return None
        if values & set(_VALUE.findall(_right(op))):
            if not is_free(op):
                return index
            values |= _results(op)
    return None


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
