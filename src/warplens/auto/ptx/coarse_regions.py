"""Regions that a warp passes at most once: the kernel's whole body, and each of its outermost loops as a whole.

They are the fallback for kernels that marks inside loops would harm: weave/fixed_slots.py records them without holding
a register in between.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from warplens.auto.ptx.found_region import FoundRegion
from warplens.auto.ptx.loop_regions import Loop, entry_gaps, exit_gaps
from warplens.auto.ptx.units import LEAVES, FunctionUnits
from warplens.weave.fixed_slots import MAX_FIXED_SLOTS

BODY, WHOLE_LOOP = "body", "whole loop"


def coarse_regions(code: FunctionUnits, loops: Sequence[Loop] | None) -> list[FoundRegion]:
    """The region of the body alone or, with `loops`, also those of the largest outermost ones; nothing if there are
    none, since that would mark no more than the body alone."""
    body = list(_body(code))
    if loops is None:
        return body
    found: list[FoundRegion] = []
    slots = MAX_FIXED_SLOTS - sum(_marks(region) for region in body)
    for region in sorted(whole_loops(code, loops), key=lambda region: -region.size):
        slots -= _marks(region)
        if slots >= 0:
            found.append(region)
    return body + found if found else []


def _marks(region: FoundRegion) -> int:
    return len(region.begins) + len(region.ends)


def _body(code: FunctionUnits) -> Iterator[FoundRegion]:
    """From the first instruction to every exit. A conditional exit has no gap that only leaving warps pass."""
    leaves = [unit for unit in code.units if unit.opcode in LEAVES]
    if not code.blocks or code.blocks[0].before or not leaves or any(code.falls_through(unit) for unit in leaves):
        return
    begin = code.head(code.blocks[0])
    location = next((unit.location for unit in code.units if unit.location), None)
    ends = tuple(unit.at for unit in leaves)
    if begin not in ends:
        yield FoundRegion("body", BODY, (begin,), ends, location, 0, size=len(code.units) + 1)


def whole_loops(code: FunctionUnits, loops: Sequence[Loop]) -> Iterator[FoundRegion]:
    """A region for each of the loops that is inside none of the others."""
    inner = {number for loop in loops for number in loop.body if number != loop.header}
    for loop in loops:
        if loop.header in inner:
            continue
        begins, ends = entry_gaps(code, loop), exit_gaps(code, loop, loop.body)
        if begins and ends:
            yield _whole_loop(code, loop, begins, ends)


def _whole_loop(code: FunctionUnits, loop: Loop, begins: list[int], ends: list[int]) -> FoundRegion:
    first, latch = code.units[code.head(code.blocks[loop.header])], code.units[code.blocks[loop.latches[-1]].stop - 1]
    size = sum(code.blocks[number].stop - code.blocks[number].start for number in loop.body)
    location = latch.location or first.location
    return FoundRegion("loops", WHOLE_LOOP, tuple(begins), tuple(ends), location, first.number, size=size)
