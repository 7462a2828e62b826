"""What an instruction writes and reads, by name."""

from __future__ import annotations

import re

from warplens.ptx.tree import Instruction

_NAME = re.compile(r"[A-Za-z_$%][\w$]*")
"""Registers, and whatever else is written like one: inline asm names its own without a %."""


def names(text: str) -> set[str]:
    """What `text` names."""
    return set(_NAME.findall(text))


def written_by(instruction: Instruction) -> set[str]:
    """The registers that it may write: those of its first operand, if that is no address."""
    first = instruction.operands[0] if instruction.operands else ""
    return set() if first.startswith("[") else names(first)


def read_by(instruction: Instruction) -> set[str]:
    """The registers that it reads, and those that it may leave as they were."""
    return names(instruction.arguments) | ({instruction.predicate} if instruction.predicate else set())
