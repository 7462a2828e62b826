"""Rematerialise values that occupy a register through a loop although a few instructions would compute them again.

A compiler that needs a value on every path to a block may compute it on each path: before a loop, and on the path
around the loop. The value then lives through the loop, where nothing needs it. ptxas cannot tell that the paths agree,
so it keeps the register. In kernels that run short of registers, the block computes the value itself instead.
"""

from __future__ import annotations

import re
from dataclasses import replace

from warplens.ptx.control_flow import ControlFlow
from warplens.ptx.dominators import on_cycles
from warplens.ptx.edits import Edits
from warplens.ptx.labels import jump_targets
from warplens.ptx.operands import names, read_by, written_by
from warplens.ptx.tree import Declaration, Function, Instruction, Label, Scope
from warplens.weave.mark_sites import BRANCHES

_PURE = frozenset({"and", "or", "xor", "not", "shl", "shr", "bfe", "add", "sub"})
_INTEGERS = frozenset({"b32", "b64", "s32", "s64", "u32", "u64"})
"""Opcodes and types of instructions whose result depends only on their operands."""
_NUMBER = re.compile(r"-?\d\w*")
MAX_CHAIN = 4
"""The longest chain of instructions that computes a value again."""


def recompute(function: Function) -> int:
    """Compute values again in the blocks after a loop that use them; return how many."""
    body = function.body or []
    nested = [node for scope in body if isinstance(scope, Scope) for node in scope.body]
    if any(isinstance(node, Declaration | Scope) for node in nested):
        return 0  # names may mean other registers there
    values, flow = RegisterValues(function), ControlFlow(function)
    found: dict[int, list[str]] = {}
    heads, repeated, needed = _heads(flow), on_cycles(flow.successors), _needed_by(flow)
    for name in values.computed_repeatedly():
        places = {heads[number] for number in needed.get(name, ())}
        if not places & repeated:
            for number in sorted(places - {0}):  # no value has waited where the kernel begins
                found.setdefault(number, []).append(name)
    edits, top_level = Edits(), {id(node) for node in body}
    for number, wanted in found.items():
        blocks = (flow.blocks[at] for at in range(number, len(flow.blocks)))
        first = next(node for block in blocks for node in block.nodes if not isinstance(node, Label))
        if id(first) in top_level:
            makers = [maker for name in wanted for maker in values.chain(name)]
            for maker in {id(maker): maker for maker in makers}.values():
                edits.before(body, first, replace(maker, lead="\n\t"))
    edits.apply()
    return sum(map(len, found.values()))


class RegisterValues:
    """The values of a function's registers that are always the same."""

    def __init__(self, function: Function) -> None:
        self.makers: dict[str, list[Instruction]] = {}
        self._meanings: dict[tuple[str, int], str | None] = {}
        for instruction in function.instructions():
            for name in written_by(instruction):
                self.makers.setdefault(name, []).append(instruction)
        self.fixed = self._fixed(function)

    def _fixed(self, function: Function) -> set[str]:
        """Return the registers that are written exactly once, before the first branch."""
        found: set[str] = set()
        targets = {id(label) for labels in jump_targets(function).values() for label in labels}
        for node in function.body or []:
            if id(node) in targets or (isinstance(node, Instruction) and node.opcode in BRANCHES):
                break
            if isinstance(node, Instruction) and not node.predicate:
                found.update(name for name in written_by(node) if len(self.makers[name]) == 1)
        return found

    def computed_repeatedly(self) -> list[str]:
        """Return the registers that several instructions write, all with the same value."""
        return [name for name, makers in self.makers.items() if len(makers) > 1 and self.meaning(name) is not None]

    def meaning(self, name: str, depth: int = MAX_CHAIN) -> str | None:
        """Return the value of a register in terms of fixed ones; None if it is not always the same."""
        if name in self.fixed or _NUMBER.fullmatch(name):
            return name
        if (name, depth) not in self._meanings:
            self._meanings[name, depth] = self._common_result(name, depth) if depth else None
        return self._meanings[name, depth]

    def _common_result(self, name: str, depth: int) -> str | None:
        """Return what all instructions that write the register compute; None as soon as two of them differ."""
        common: str | None = None
        for maker in self.makers.get(name, ()):
            result = self._result(maker, name, depth)
            if result is None or (common is not None and result != common):
                return None
            common = result
        return common

    def _result(self, maker: Instruction, name: str, depth: int) -> str | None:
        if maker.predicate or maker.opcode not in _PURE or not _INTEGERS.issuperset(maker.modifiers):
            return None
        target, *operands = maker.operands
        parts = [self.meaning(operand, depth - 1) for operand in operands]
        return None if None in parts or target != name else f"{maker.full_opcode}({', '.join(map(str, parts))})"

    def chain(self, name: str) -> list[Instruction]:
        """Return the instructions that compute a value from fixed registers, in order."""
        if name in self.fixed or _NUMBER.fullmatch(name):
            return []
        maker = self.makers[name][0]
        return [part for operand in maker.operands[1:] for part in self.chain(operand)] + [maker]


def _heads(flow: ControlFlow) -> list[int]:
    """Return, for each block, the first of the blocks that always lead to it without a branch."""
    heads: list[int] = []
    for number, before in enumerate(flow.predecessors):
        alone = before == [number - 1] and flow.blocks[number - 1].successors == [number]
        heads.append(heads[number - 1] if alone else number)
    return heads


def _needed_by(flow: ControlFlow) -> dict[str, list[int]]:
    """Return, for each register, the blocks that read the value that it has on entry."""
    found: dict[str, list[int]] = {}
    for number, block in enumerate(flow.blocks):
        settled: set[str] = set()
        for instruction in block.instructions:
            made = set() if instruction.predicate else written_by(instruction)
            made -= names(" ".join(instruction.operands[1:]))
            for name in read_by(instruction) - made - settled:
                found.setdefault(name, []).append(number)
                settled.add(name)
            settled |= made
    return found
