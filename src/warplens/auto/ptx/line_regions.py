"""Regions of source lines: each line that does work, and ranges of lines that the user named."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from warplens.auto.ptx.found_region import FoundRegion
from warplens.auto.ptx.instruction_classes import HEAVY, weight_of
from warplens.auto.ptx.units import FunctionUnits, Unit, UnitBlock
from warplens.auto.rules import LineRange
from warplens.ptx.tree import Label


@dataclass
class _LineRun:
    """Neighbouring units of one source line."""

    units: list[Unit]
    location: tuple[str, int] | None
    weight: int


def worked_lines(
    code: FunctionUnits, cuts: set[int], taken: set[int], around: list[FoundRegion]
) -> Iterator[FoundRegion]:
    """One region per stretch of a block that works for one line. Optimised code mixes lines: a run that does no work of
    its own (addresses, copies) counts to the one it prepares, or else to the one it follows. What works for the line of
    a structure `around` it is in its region already."""
    for block in code.blocks:
        for stretch in _stretches(code, block, cuts, taken):
            inside = [one for one in around if one.begin <= stretch[0].at < one.ends[-1]]
            # A kernel's first instructions wait for its code and its parameters, whatever they compute; and what is in
            # no structure is in no region but its own.
            for run in _merged(_runs(stretch), HEAVY if block.start and inside else 1):
                first, last = run.units[0], run.units[-1]
                if not inside or run.location != inside[-1].location:
                    size = last.at + 1 - first.at
                    yield FoundRegion(
                        "lines", "line", (first.at,), (last.at + 1,), run.location, first.number, size=size
                    )


def _stretches(code: FunctionUnits, block: UnitBlock, cuts: set[int], taken: set[int]) -> Iterator[list[Unit]]:
    """The block's units without its labels and its last jump, cut where a region may not pass."""
    units: list[Unit] = []
    for unit in code.units[code.head(block) : code.tail(block)]:
        if units and (unit.at in cuts or unit.at in taken):
            yield units
            units = []
        if unit.at not in taken and not isinstance(unit.node, Label):
            units.append(unit)
    if units:
        yield units


def _runs(units: list[Unit]) -> list[_LineRun]:
    runs: list[_LineRun] = []
    for unit in units:
        weight = weight_of(unit.instruction)
        # What has no line of its own goes with what stands before it.
        if runs and unit.location in (runs[-1].location, None):
            runs[-1].units.append(unit)
            runs[-1].weight += weight
        else:
            runs.append(_LineRun([unit], unit.location, weight))
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
    """A region over each range's code: one where control enters at its top and leaves at its bottom, else one in each
    block."""
    for wanted in ranges:
        inside = [unit for unit in code.units if unit.location is not None and wanted.holds(*unit.location)]
        if not inside:
            continue
        whole = _whole(code, inside)
        if whole is not None:
            yield _range(code, wanted, *whole)
            continue
        for block in code.blocks:
            mine = [unit for unit in inside if block.start <= unit.at < code.tail(block)]
            for units in _close(code, [unit for unit in mine if not isinstance(unit.node, Label)]):
                yield _range(code, wanted, units[0].at, units[-1].at + 1)


def _range(code: FunctionUnits, wanted: LineRange, begin: int, end: int) -> FoundRegion:
    first = code.units[begin]
    return FoundRegion(
        "ranges", wanted.name, (begin,), (end,), (wanted.file, wanted.first), first.number, size=end - begin
    )


def _whole(code: FunctionUnits, inside: list[Unit]) -> tuple[int, int] | None:
    """The gaps around all of a range's code, unless most of what lies between is not the range's."""
    begin, end = inside[0].at, inside[-1].at + 1
    own = sum(weight_of(unit.instruction) for unit in inside if not isinstance(unit.node, Label))
    between = sum(weight_of(unit.instruction) for unit in code.units[begin:end] if not isinstance(unit.node, Label))
    return code.enclosed(begin, end) if 2 * own >= between else None


def _close(code: FunctionUnits, units: list[Unit]) -> Iterator[list[Unit]]:
    """Units in groups that only light code of other lines interrupts."""
    group: list[Unit] = []
    for unit in units:
        if group and sum(weight_of(other.instruction) for other in code.units[group[-1].at + 1 : unit.at]) >= HEAVY:
            yield group
            group = []
        group.append(unit)
    if group:
        yield group
