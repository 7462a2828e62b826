"""Regions of operations: consecutive ones of the same class and source line, inside one basic block.

A load is asynchronous: the warp continues until it needs the value. If only arithmetic is in between, one `load` region
begins at the first load and ends when the value that is needed first has arrived. Otherwise there are two regions:
`load issue` for the instructions, and `load wait` where the value is needed, if that is in the same block.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator

from warplens.auto.ptx.found_region import FoundRegion
from warplens.auto.ptx.instruction_classes import Kind
from warplens.auto.ptx.units import REGISTER, FunctionUnits, Unit

RETURNS_VALUE = frozenset({"load", "atomic"})
"""Operations with a result that the warp may have to wait for."""


class Operations:
    """Finds the regions of the wanted classes. Units in `claimed` belong to another rule, such as a spin."""

    def __init__(self, code: FunctionUnits, wanted: Iterable[str], cuts: set[int], claimed: set[int]) -> None:
        self.code, self.wanted, self.cuts = code, set(wanted), sorted(cuts)
        self.kinds: dict[int, Kind] = {
            unit.at: unit.kind for unit in code.units if unit.kind is not None and unit.at not in claimed
        }
        self.places = list(self.kinds)
        self.mentions: dict[str, list[int]] = {}
        """The units that mention each register, in order; one that mentions it twice is listed twice."""
        self.calls: list[int] = []
        for unit in code.units:
            for name in unit.registers():
                if name in self.mentions:
                    self.mentions[name].append(unit.at)
                else:
                    self.mentions[name] = [unit.at]
            if unit.opcode == "call":
                self.calls.append(unit.at)

    def find(self) -> Iterator[FoundRegion]:
        for group in self._groups():
            kind, prefix = self.kinds[group[0].at]
            if kind not in self.wanted:
                continue
            if prefix in RETURNS_VALUE:
                yield from self._load_regions(group)
            else:
                yield self._region(group, prefix, group[-1].at + 1)

    def _groups(self) -> Iterator[list[Unit]]:
        """Units of the same kind and line with only arithmetic between them."""
        group: list[Unit] = []
        for at in self.places:
            unit = self.code.units[at]
            if group and not self._together(group[-1], unit):
                yield group
                group = []
            group.append(unit)
        if group:
            yield group

    def _together(self, one: Unit, other: Unit) -> bool:
        return (
            one.block == other.block
            and self.kinds[one.at] == self.kinds[other.at]
            and one.location == other.location
            and not self._cut(one.at, other.at)
        )

    def _cut(self, after: int, until: int) -> bool:
        return _any_in(self.cuts, after, until)

    def _region(self, group: list[Unit], prefix: str, end: int, awaits: tuple[str, ...] = ()) -> FoundRegion:
        first = group[0]
        kind = self.kinds[first.at][0]
        return FoundRegion(kind, prefix, (first.at,), (end,), first.location, first.number, awaits)

    def _load_regions(self, group: list[Unit]) -> Iterator[FoundRegion]:
        prefix, last = self.kinds[group[0].at][1], group[-1]
        values = {name for unit in group for name in written(unit) if self.code.size_of(name) in (2, 4, 8)}
        if prefix == "atomic" and all(self.mentions[value][0] == self.mentions[value][-1] for value in values):
            yield self._region(group, prefix, last.at + 1)
            return
        use = self._first_use(last, values)
        if use is None:
            yield self._region(group, f"{prefix} issue", last.at + 1)
            return
        awaited = tuple(sorted(values.intersection(use.registers())))
        between = _any_in(self.places, last.at, use.at - 1)
        if not between and not self._cut(last.at, use.at):
            yield self._region(group, prefix, use.at, awaited)
            return
        yield self._region(group, f"{prefix} issue", last.at + 1)
        yield FoundRegion(
            self.kinds[last.at][0], f"{prefix} wait", (use.at,), (use.at,), group[0].location, group[0].number, awaited
        )

    def _first_use(self, last: Unit, values: set[str]) -> Unit | None:
        """The first unit after `last` that mentions one of `values`, in the same block and before any call."""
        uses = [at for value in values if (at := _first_after(self.mentions.get(value, []), last.at)) is not None]
        call = _first_after(self.calls, last.at)
        stop = self.code.blocks[last.block].stop if call is None else min(call, self.code.blocks[last.block].stop)
        return self.code.units[min(uses)] if uses and min(uses) < stop else None


def _first_after(places: list[int], at: int) -> int | None:
    """The first of the sorted `places` after `at`."""
    index = bisect.bisect_right(places, at)
    return places[index] if index < len(places) else None


def _any_in(places: list[int], after: int, until: int) -> bool:
    """Whether one of the sorted `places` is after `after` and not after `until`."""
    first = _first_after(places, after)
    return first is not None and first <= until


def written(unit: Unit) -> set[str]:
    """The destination registers of a load or an atomic."""
    instruction = unit.instruction
    if instruction is None or instruction.opcode in ("st", "red"):
        return set()
    text = instruction.arguments.lstrip()
    return set(REGISTER.findall(text.partition("}" if text.startswith("{") else ",")[0]))
