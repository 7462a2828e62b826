"""Regions of loops: one per iteration, or one wait for a loop that spins on an mbarrier, a flag or a lock.

Only natural loops (one header that dominates its latches) are marked, and only if every exit passes exactly
one end mark.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from warplens.auto.ptx.found_region import FoundRegion
from warplens.auto.ptx.instruction_classes import HEAVY
from warplens.auto.ptx.units import LEAVES, FunctionUnits, Unit
from warplens.ptx.dominators import DominatorTree, loop_bodies
from warplens.weave.polling_loops import MEMORY, polled


@dataclass(eq=False)
class Loop:
    """A natural loop, as block numbers."""

    header: int
    latches: list[int]
    body: set[int]
    tests: list[Unit] = field(default_factory=list)
    """What the loop tests in each round if it does nothing else."""


def natural_loops(code: FunctionUnits) -> list[Loop]:
    """The natural loops of `code`, ordered by header."""
    if not code.blocks:
        return []
    after, before = [block.after for block in code.blocks], [block.before for block in code.blocks]
    found = loop_bodies(DominatorTree(after, 0), after, before, range(len(after)))
    loops = [Loop(header, *found[header]) for header in sorted(found)]
    for loop in loops:
        loop.tests = _tested(code, loop)
    return loops


def spins(code: FunctionUnits, loops: list[Loop]) -> Iterator[tuple[Loop, FoundRegion]]:
    """Loops that only test an mbarrier, a flag or a lock; each is one wait, however often it tests."""
    for loop in loops:
        if not loop.tests:
            continue
        begins, ends = entry_gaps(code, loop), exit_gaps(code, loop, loop.body)
        if begins and ends:
            first = loop.tests[0]
            name = "wait" if first.opcode == "mbarrier" else "spin wait"
            yield loop, FoundRegion("waits", name, tuple(begins), tuple(ends), first.location, first.number)


def _tested(code: FunctionUnits, loop: Loop) -> list[Unit]:
    blocks = [code.blocks[number] for number in sorted(loop.body)]
    units = [unit for block in blocks for unit in code.units[block.start : block.stop] if unit.instruction]
    tries = [unit for unit in units if unit.opcode == "mbarrier" and unit.kind]
    if tries and {unit.kind for unit in units if unit.kind} == {("waits", "wait")} and not any(map(_works, units)):
        return tries
    if polled([unit.instruction for unit in units if unit.instruction]) == MEMORY:
        return [unit for unit in units if unit.opcode in ("ld", "atom")]
    return []


def _works(unit: Unit) -> bool:
    """Whether a unit does what a loop that only waits would not: work, or an arrival at a barrier."""
    return unit.kind is None and (unit.opcode == "mbarrier" or unit.weight >= HEAVY)


def iterations(code: FunctionUnits, loops: list[Loop]) -> Iterator[FoundRegion]:
    """One region per iteration, with its own counter, of each loop in which marks stay balanced."""
    for loop in loops:
        early = exit_gaps(code, loop, loop.body - set(loop.latches))
        if early is None or not _latches_end_iterations(code, loop):
            continue
        header = code.blocks[loop.header]
        entries = [code.blocks[before] for before in header.before if before not in loop.body]
        latch = code.units[code.blocks[loop.latches[-1]].stop - 1]
        begin = code.head(header)
        ends = {code.tail(code.blocks[number]) for number in loop.latches}
        yield FoundRegion(
            "loops", "loop", (begin,), tuple(sorted({*ends, *early})), latch.location or code.units[begin].location,
            code.units[begin].number, counter=f"%wl_n{loop.header}",
            starts=tuple(sorted({code.tail(block) for block in entries})),
            size=sum(code.blocks[number].stop - code.blocks[number].start for number in loop.body),
        )  # fmt: skip


def _latches_end_iterations(code: FunctionUnits, loop: Loop) -> bool:
    """Whether the end of a latch always ends the iteration, by starting the next one or leaving the loop."""
    follow = {after for latch in loop.latches for after in code.blocks[latch].after}
    return loop.header != 0 and not (follow & loop.body) - {loop.header}


def entry_gaps(code: FunctionUnits, loop: Loop) -> list[int] | None:
    """One gap on each edge into the loop; None if an edge has no gap."""
    outside = [before for before in code.blocks[loop.header].before if before not in loop.body]
    gaps = [code.on_edge(before, loop.header, set()) for before in outside]
    return None if loop.header == 0 or None in gaps else sorted({gap for gap in gaps if gap is not None})


def exit_gaps(code: FunctionUnits, loop: Loop, sources: set[int]) -> list[int] | None:
    """One gap on each edge from `sources` out of the loop; None if an edge has no gap."""
    gaps = []
    for number in sources:
        block = code.blocks[number]
        if code.units[block.stop - 1].opcode in (*LEAVES, "brx"):
            return None
        gaps += [code.on_edge(number, after, sources) for after in block.after if after not in loop.body]
    return None if None in gaps else sorted({gap for gap in gaps if gap is not None})
