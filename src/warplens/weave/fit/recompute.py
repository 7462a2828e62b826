"""Values that wait in registers through a loop, though a few instructions would make them again.

A compiler that needs a value on every way to a block may make it on each of these ways: before a loop, and where the
loop is passed by. It then lives through the loop, in which nothing needs it. That the ways agree ptxas can no longer
tell, so it keeps the register. Here the block makes the value itself, in kernels that run short of registers.
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
_WHOLE = frozenset({"b32", "b64", "s32", "s64", "u32", "u64"})
"""Opcodes and types of instructions that do nothing but give the same result for the same operands."""
_PLAIN = re.compile(r"-?\d\w*")
"""A number."""
DEPTH = 4
"""Instructions in a row that a value may take."""


def recompute(function: Function) -> int:
    """Make values again in the blocks behind loops that use them; the number of them."""
    body = function.body or []
    nested = [node for scope in body if isinstance(scope, Scope) for node in scope.body]
    if any(isinstance(node, Declaration | Scope) for node in nested):
        return 0  # names may stand for something else there
    values, flow = Values(function), ControlFlow(function)
    found: dict[int, list[str]] = {}
    heads = _heads(flow)
    for name in values.rebuilt():
        places = {heads[number] for number, block in enumerate(flow.blocks) if _needs(block, name)}
        if not any(number in flow.reachable(flow.blocks[number].successors, 0) for number in places):
            for number in sorted(places - {0}):  # where the kernel begins nothing has waited yet
                found.setdefault(number, []).append(name)
    for number, wanted in found.items():
        nodes = itertools.chain.from_iterable(block.nodes for block in flow.blocks[number:])
        first = next(node for node in nodes if not isinstance(node, Label))
        at = next((index for index, node in enumerate(body) if node is first), None)
        if at is not None:
            makers = [maker for name in wanted for maker in values.chain(name)]
            body[at:at] = [replace(maker, lead="\n\t") for maker in {id(maker): maker for maker in makers}.values()]
    return sum(map(len, found.values()))


class Values:
    """What the registers of a function hold, as far as it is always the same."""

    def __init__(self, function: Function) -> None:
        self.makers: dict[str, list[Instruction]] = {}
        for instruction in function.instructions():
            for name in written_by(instruction):
                self.makers.setdefault(name, []).append(instruction)
        self.fixed = self._fixed(function)

    def _fixed(self, function: Function) -> set[str]:
        """Registers that are written once and for all before the first branch."""
        found: set[str] = set()
        targets = {id(label) for labels in jump_targets(function).values() for label in labels}
        for node in function.body or []:
            if id(node) in targets or (isinstance(node, Instruction) and node.opcode in BRANCHES):
                break
            if isinstance(node, Instruction) and not node.predicate:
                found.update(name for name in written_by(node) if len(self.makers[name]) == 1)
        return found

    def rebuilt(self) -> list[str]:
        """Registers that several instructions write, all of them the same value."""
        return [name for name, makers in self.makers.items() if len(makers) > 1 and self.meaning(name) is not None]

    def meaning(self, name: str, depth: int = DEPTH) -> str | None:
        """The value of a register in terms of fixed ones; None where it is not always the same."""
        if name in self.fixed or _PLAIN.fullmatch(name):
            return name
        meanings = {self._result(maker, name, depth) for maker in self.makers.get(name, [])} if depth else {None}
        return meanings.pop() if len(meanings) == 1 else None

    def _result(self, maker: Instruction, name: str, depth: int) -> str | None:
        target, *operands = maker.operands
        if maker.predicate or maker.opcode not in _PURE or not _WHOLE.issuperset(maker.modifiers) or target != name:
            return None
        parts = [self.meaning(operand, depth - 1) for operand in operands]
        return None if None in parts else f"{maker.full_opcode}({', '.join(map(str, parts))})"

    def chain(self, name: str) -> list[Instruction]:
        """Instructions that make a value from fixed registers, those first that others need."""
        if name in self.fixed or _PLAIN.fullmatch(name):
            return []
        maker = self.makers[name][0]
        return [part for operand in maker.operands[1:] for part in self.chain(operand)] + [maker]


def _heads(flow: ControlFlow) -> list[int]:
    """For each block, the first of those that it is always reached through without a choice."""
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
    """Whether the block uses what is in the register when it is entered."""
    for instruction in block.instructions:
        makes = name in written_by(instruction) and not instruction.predicate
        if makes and name not in names(" ".join(instruction.operands[1:])):
            return False
        if name in read_by(instruction):
            return True
    return False
