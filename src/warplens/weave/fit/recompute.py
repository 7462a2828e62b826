"""Rematerialise values that occupy a register through a loop although a few instructions would compute them again.

A compiler that needs a value on every path to a block may compute it on each path: before a loop, and on the path
around the loop. The value then lives through the loop, where nothing needs it. ptxas cannot tell that the paths agree,
so it keeps the register. In kernels that run short of registers, the block computes the value itself instead.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

from warplens.ptx.control_flow import BasicBlock, ControlFlow
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
    heads = _heads(flow)
    for name in values.computed_repeatedly():
        places = {heads[number] for number, block in enumerate(flow.blocks) if _needs(block, name)}
        if not any(number in flow.reachable(flow.blocks[number].successors, 0) for number in places):
            for number in sorted(places - {0}):  # no value has waited where the kernel begins
                found.setdefault(number, []).append(name)
    for number, wanted in found.items():
        nodes = itertools.chain.from_iterable(block.nodes for block in flow.blocks[number:])
        first = next(node for node in nodes if not isinstance(node, Label))
        at = next((index for index, node in enumerate(body) if node is first), None)
        if at is not None:
            makers = [maker for name in wanted for maker in values.chain(name)]
            body[at:at] = [replace(maker, lead="\n\t") for maker in {id(maker): maker for maker in makers}.values()]
    return sum(map(len, found.values()))


class RegisterValues:
    """The values of a function's registers that are always the same."""

    def __init__(self, function: Function) -> None:
        self.makers: dict[str, list[Instruction]] = {}
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
        meanings = {self._result(maker, name, depth) for maker in self.makers.get(name, [])} if depth else {None}
        return meanings.pop() if len(meanings) == 1 else None

    def _result(self, maker: Instruction, name: str, depth: int) -> str | None:
        target, *operands = maker.operands
        if maker.predicate or maker.opcode not in _PURE or not _INTEGERS.issuperset(maker.modifiers) or target != name:
            return None
        parts = [self.meaning(operand, depth - 1) for operand in operands]
        return None if None in parts else f"{maker.full_opcode}({', '.join(map(str, parts))})"

    def chain(self, name: str) -> list[Instruction]:
        """Return the instructions that compute a value from fixed registers, in order."""
        if name in self.fixed or _NUMBER.fullmatch(name):
            return []
        maker = self.makers[name][0]
        return [part for operand in maker.operands[1:] for part in self.chain(operand)] + [maker]


def _heads(flow: ControlFlow) -> list[int]:
    """Return, for each block, the first of the blocks that always lead to it without a branch."""
    before: list[list[int]] = [[] for _ in flow.blocks]
    for number, block in enumerate(flow.blocks):
        for after in block.successors:
            before[after].append(number)
    heads: list[int] = []
    for number in range(len(flow.blocks)):
        alone = before[number] == [number - 1] and flow.blocks[number - 1].successors == [number]
        heads.append(heads[number - 1] if alone else number)
    return heads


def _needs(block: BasicBlock, name: str) -> bool:
    """Return whether the block reads the value that the register has on entry."""
    for instruction in block.instructions:
        makes = name in written_by(instruction) and not instruction.predicate
        if makes and name not in names(" ".join(instruction.operands[1:])):
            return False
        if name in read_by(instruction):
            return True
    return False
