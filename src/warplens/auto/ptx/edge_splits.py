"""Room for marks on the edges of polling loops.

A jump out of a loop to a place that other code reaches too leaves no gap that only this edge passes, so that the wait
could not end there. Such a jump goes around a new block, which holds a jump to the old target.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from warplens.auto.ptx.loop_regions import Loop
from warplens.auto.ptx.units import FunctionUnits, Unit
from warplens.ptx.edits import Edits
from warplens.ptx.tree import Instruction, Label

_NAME = "$wl_edge"


def split_polling_edges(code: FunctionUnits, loops: list[Loop]) -> bool:
    """Give each edge into and out of a loop that only polls a gap of its own; return whether the function changed."""
    edits, done = Edits(), set[int]()
    for loop in loops:
        if not loop.tests:
            continue
        for source, target, among in _edges(code, loop):
            last = code.units[code.blocks[source].stop - 1]
            if last.at not in done and code.on_edge(source, target, among) is None and _split(last, edits):
                done.add(last.at)
    edits.apply()
    return bool(done)


def _edges(code: FunctionUnits, loop: Loop) -> Iterator[tuple[int, int, set[int]]]:
    """The edges into the loop and out of it, each with the blocks whose edges may share its gap."""
    for before in code.blocks[loop.header].before:
        if before not in loop.body:
            yield before, loop.header, set()
    for number in sorted(loop.body):
        for after in code.blocks[number].after:
            if after not in loop.body:
                yield number, after, loop.body


def _split(last: Unit, edits: Edits) -> bool:
    """Replace `@p bra TARGET;` by a jump around `bra TARGET;`."""
    jump = last.instruction
    if jump is None or jump.opcode != "bra" or jump.predicate is None:
        return False
    around = f"{_NAME}{last.at}"
    sign = "" if jump.negated else "!"
    negated = replace(
        jump, raw=f"@{sign}{jump.predicate} {jump.full_opcode} {around};", negated=not jump.negated, arguments=around
    )
    plain = Instruction("\n\t", f"bra {jump.arguments.strip()};", 0, opcode="bra", arguments=jump.arguments)
    for node in (negated, plain, Label("\n", f"{around}:", 0, name=around)):
        edits.before(last.holder, jump, node)
    edits.remove(last.holder, jump)
    return True
