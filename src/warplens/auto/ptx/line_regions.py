"""Regions of source lines: each line that does work, and ranges of lines named by the user."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from warplens.auto.ptx.found_region import FoundRegion
from warplens.auto.ptx.instruction_classes import HEAVY
from warplens.auto.ptx.units import FunctionUnits, Unit, UnitBlock
from warplens.auto.rules import LineRange
from warplens.ptx.tree import Label


@dataclass(slots=True)
class _LineRun:
    """Consecutive units of one source line."""

    units: list[Unit]
    location: tuple[str, int] | None
    weight: int


def worked_lines(
    code: FunctionUnits, cuts: set[int], claimed: set[int], around: list[FoundRegion]
) -> Iterator[FoundRegion]:
    """One region per part of a basic block that works for one line.

    Optimised code interleaves lines: units that do no work themselves (addresses, copies) count towards the work that
    follows them, or else towards the work before them. Work for the line of an enclosing region in `around` needs no
    region.
    """
    enclosing = _Innermost(around)
    for block in code.blocks:
        for units in _cut_units(code, block, cuts, claimed):
            inside = enclosing.around(units[0].at)
            # The first instructions of a kernel wait for its code and parameters, whatever they compute, and code that
            # is in no enclosing region needs its own.
            for run in _merged(_line_runs(units), HEAVY if block.start and inside is not None else 1):
                first, last = run.units[0], run.units[-1]
                if inside is None or run.location != inside.location:
                    size = last.at + 1 - first.at
                    yield FoundRegion(
                        "lines", "line", (first.at,), (last.at + 1,), run.location, first.number, size=size
                    )


class _Innermost:
    """Finds, for places in ascending order, the innermost of the regions around each."""

    def __init__(self, regions: list[FoundRegion]) -> None:
        self._regions = sorted(regions, key=lambda region: (region.begin, -region.ends[-1]))
        self._next = 0
        self._open: list[FoundRegion] = []

    def around(self, at: int) -> FoundRegion | None:
        while self._next < len(self._regions) and self._regions[self._next].begin <= at:
            self._open.append(self._regions[self._next])
            self._next += 1
        while self._open and self._open[-1].ends[-1] <= at:
            self._open.pop()
        return self._open[-1] if self._open else None


def _cut_units(code: FunctionUnits, block: UnitBlock, cuts: set[int], claimed: set[int]) -> Iterator[list[Unit]]:
    """The block's units without its labels and its last jump, split at the gaps that no region may cross."""
    units: list[Unit] = []
    for unit in code.units[code.head(block) : code.tail(block)]:
        if units and (unit.at in cuts or unit.at in claimed):
            yield units
            units = []
        if unit.at not in claimed and not isinstance(unit.node, Label):
            units.append(unit)
    if units:
        yield units


def _line_runs(units: list[Unit]) -> list[_LineRun]:
    runs: list[_LineRun] = []
    for unit in units:
        # A unit without a line belongs to the line before it.
        if runs and unit.location in (runs[-1].location, None):
            runs[-1].units.append(unit)
            runs[-1].weight += unit.weight
        else:
            runs.append(_LineRun([unit], unit.location, unit.weight))
    return runs


def _merged(runs: list[_LineRun], least: int) -> list[_LineRun]:
    if not any(run.weight >= HEAVY for run in runs):
        total = sum(run.weight for run in runs)
        heaviest = max(runs, key=lambda run: run.weight)
        return [_LineRun([u for run in runs for u in run.units], heaviest.location, total)] if total >= least else []
    merged: list[_LineRun] = []
    waiting: list[Unit] = []
    for run in runs:
        if run.weight < HEAVY:
            waiting += run.units
        elif merged and merged[-1].location == run.location:
            merged[-1].units += [*waiting, *run.units]
            waiting = []
        else:
            merged.append(_LineRun([*waiting, *run.units], run.location, run.weight))
            waiting = []
    merged[-1].units += waiting
    return merged


def line_ranges(code: FunctionUnits, ranges: tuple[LineRange, ...]) -> Iterator[FoundRegion]:
    """One region for each range if control enters it at the top and leaves at the bottom, else one per block."""
    for wanted in ranges:
        inside = _units_of(code, wanted)
        if not inside:
            continue
        gaps = _enclosing_gaps(code, inside)
        if gaps is not None:
            yield _range(code, wanted, *gaps)
            continue
        for number, mine in itertools.groupby(inside, lambda unit: unit.block):
            tail = code.tail(code.blocks[number])
            for units in _nearby(code, [u for u in mine if u.at < tail and not isinstance(u.node, Label)]):
                yield _range(code, wanted, units[0].at, units[-1].at + 1)


def _units_of(code: FunctionUnits, wanted: LineRange) -> list[Unit]:
    files = {file for file in code.lines if wanted.is_in(file)}
    first, last = wanted.first, wanted.last
    placed = ((unit, unit.location) for unit in code.units) if files else ()
    return [unit for unit, place in placed if place and first <= place[1] <= last and place[0] in files]


def _range(code: FunctionUnits, wanted: LineRange, begin: int, end: int) -> FoundRegion:
    first = code.units[begin]
    return FoundRegion(
        "ranges", wanted.name, (begin,), (end,), (wanted.file, wanted.first), first.number, size=end - begin
    )


def _enclosing_gaps(code: FunctionUnits, inside: list[Unit]) -> tuple[int, int] | None:
    """The gaps around all code of a range; None if most of the code in between belongs to other lines."""
    begin, end = inside[0].at, inside[-1].at + 1
    own, between = sum(unit.weight for unit in inside), sum(unit.weight for unit in code.units[begin:end])
    return code.enclosed(begin, end) if 2 * own >= between else None


def _nearby(code: FunctionUnits, units: list[Unit]) -> Iterator[list[Unit]]:
    """Group units between which there is only light code of other lines."""
    group: list[Unit] = []
    for unit in units:
        if group and sum(other.weight for other in code.units[group[-1].at + 1 : unit.at]) >= HEAVY:
            yield group
            group = []
        group.append(unit)
    if group:
        yield group
