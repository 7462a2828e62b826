"""The names of the registers that an instruction writes and reads."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property

from warplens.ptx.tree import Instruction

_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
"""Registers and anything spelled like one: registers of inline asm need no `%`."""


def names(text: str) -> set[str]:
    """All identifiers in `text`."""
    return set(_NAME.findall(text))


def written_by(instruction: Instruction) -> set[str]:
    """The registers that it may write: those of its first operand, unless that is an address."""
    first = instruction.operands[0] if instruction.operands else ""
    return set() if first.startswith("[") else names(first)


def read_by(instruction: Instruction) -> set[str]:
    """The registers that it reads, including its destinations, which a false predicate leaves unchanged."""
    return names(instruction.arguments) | ({instruction.predicate} if instruction.predicate else set())


class RegisterWriters:
    """Which instructions of a function write each register, looked up when first asked for."""

    def __init__(self, instructions: Sequence[Instruction]) -> None:
        self.instructions = instructions

    @cached_property
    def by_name(self) -> Mapping[str, Sequence[Instruction]]:
        found: defaultdict[str, list[Instruction]] = defaultdict(list)
        for one in self.instructions:
            for register in written_by(one):
                found[register].append(one)
        return found

    def of(self, register: str) -> Sequence[Instruction]:
        """The instructions that may write a register."""
        return self.by_name.get(register, ())

    def depends(self, instruction: Instruction, registers: Collection[str]) -> bool:
        """Whether what an instruction writes depends on what one of `registers` holds, directly or by way of others."""
        seen: set[str] = set()
        work = list(names(" ".join(instruction.operands[1:])))
        while work:
            name = work.pop()
            if name in registers:
                return True
            if name not in seen:
                seen.add(name)
                for one in self.of(name):
                    work += names(" ".join(one.operands[1:]))
        return False

    def behind(self, register: str) -> list[Instruction]:
        """The instructions that a value is computed with, back to what was loaded."""
        found: list[Instruction] = []
        seen, work = {register}, [register]
        while work:
            for one in self.of(work.pop()):
                found.append(one)
                if one.opcode != "ld":
                    more = names(" ".join(one.operands[1:])) - seen
                    seen |= more
                    work += more
        return found
