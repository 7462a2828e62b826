"""Regions of source lines: each line that does work, and ranges of lines named by the user."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from warplens.auto.ptx.found_region import FoundRegion
from warplens.auto.ptx.instruction_classes import HEAVY
from warplens.auto.ptx.range_edges import RangeEdges, Runs
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
    """One region for each range: from its first to its last unit if control enters it at the top and leaves at the
    bottom, else with a mark on each edge between its code and other code."""
    for wanted in ranges:
        inside = _units_of(code, wanted)
        if not inside:
            continue
        own = {unit.at for unit in inside}
        repeats = {at for at, targets in code.jumps.items() if min(targets, default=at + 1) <= at} - own
        enclosed = _enclosing_gaps(code, inside)
        if enclosed is not None and repeats.isdisjoint(range(*enclosed)):
            yield _range(code, wanted, (enclosed[0],), (enclosed[1],), enclosed[1] - enclosed[0])
            continue
        runs: Runs = {}
        for number, mine in itertools.groupby(inside, lambda unit: unit.block):
            tail = code.tail(code.blocks[number])
            found = _nearby(code, [u for u in mine if u.at < tail and not isinstance(u.node, Label)])
            if spans := [(units[0].at, units[-1].at + 1) for units in found]:
                runs.setdefault(number, []).extend(spans)
        begins, ends = RangeEdges(code, runs, repeats).gaps()
        if begins and ends:  # there are none in code that no path leads to
            size = sum(end - begin for spans in runs.values() for begin, end in spans)
            yield _range(code, wanted, begins, ends, size)


def _units_of(code: FunctionUnits, wanted: LineRange) -> list[Unit]:
    """The units whose line is in the range, or the line of a call that they were inlined by."""
    known = {*code.lines, *(file for unit in code.units for file, _ in unit.calls)}
    files, first, last = {file for file in known if wanted.is_in(file)}, wanted.first, wanted.last
    placed = ((unit, unit.location) for unit in code.units) if files else ()
    return [
        unit
        for unit, place in placed
        if place and any(first <= line <= last and file in files for file, line in (place, *unit.calls))
    ]


def _range(
    code: FunctionUnits, wanted: LineRange, begins: tuple[int, ...], ends: tuple[int, ...], size: int
) -> FoundRegion:
    number = code.units[begins[0]].number
    return FoundRegion("ranges", wanted.name, begins, ends, (wanted.file, wanted.first), number, size=size)


def _enclosing_gaps(code: FunctionUnits, inside: list[Unit]) -> tuple[int, int] | None:
    """The gaps around all code of a range; None if most of the code in between belongs to other lines."""
    begin, end = inside[0].at, inside[-1].at + 1
    while begin and isinstance(code.units[begin - 1].node, Label):  # of a loop that begins here, if it is of the range
        begin -= 1
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
