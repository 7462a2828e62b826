"""Which arrays an address may be in: the variables and pointers that it is computed from.

An address is the sum of a base and an index. Where it comes by several ways, as the pointer of a loop does or the one
of two buffers that a condition picks, it may be in the array of each. What was loaded or multiplied is an index.
"""

from __future__ import annotations

import functools
import re

from warplens.ptx.operands import RegisterWriters
from warplens.ptx.tree import Declaration, Function, Instruction

DYNAMIC = "dynamic shared memory"
"""Stands for all arrays that begin where the block's shared memory of run-time size does: they have the same bytes."""
_NO_BASE = frozenset({"mul", "shl", "shr", "div", "rem", "setp", "set", "popc", "clz", "bfind", "mul24", "sad", "vote"})
"""Instructions whose result is an index or a number, not an address."""
_LAST_IS_ADDED = frozenset({"mad", "mad24", "fma"})
_NAME = re.compile(r"[A-Za-z_$][\w$.]*")
_ROUNDS = 24
Bases = frozenset[str] | None
_NONE: frozenset[str] = frozenset()


class _NotKnownYet:
    """The value of a register of a loop before one of its writers was followed."""


_LATER = _NotKnownYet()


class AddressBases:
    """The arrays that the addresses of a function may be in."""

    def __init__(self, function: Function, writers: RegisterWriters) -> None:
        self._function, self._writers = function, writers
        self._wide = {one.name for one in function.params if one.size != 4}
        self._known: dict[str, Bases | _NotKnownYet] = {}

    @functools.cached_property
    def _own(self) -> set[str]:
        """The shared arrays that the function declares with a size."""
        return {
            variable.name
            for node in self._function.walk()
            if isinstance(node, Declaration) and node.space == "shared"
            for variable in node.variables
            if "extern" not in node.linkage
        }

    def of(self, operand: str, space: str) -> Bases:
        """The arrays that the address of an operand such as `[%rd1+16]` may be in; None for any."""
        found = self._sum(self._parts(operand))
        if isinstance(found, _NotKnownYet) or not found:
            return None
        if space != "shared":
            return found
        # Arrays of fixed size are declared in the function; all others may begin at the same place.
        return frozenset(name if name in self._own else DYNAMIC for name in found)

    @staticmethod
    def _parts(operand: str) -> list[str]:
        return [part.strip() for part in operand.strip().strip("[]").split("+")]

    def _sum(self, parts: list[str]) -> Bases | _NotKnownYet:
        values = [self._value(part) for part in parts]
        if any(isinstance(value, _NotKnownYet) for value in values):
            return _LATER
        known = [value for value in values if not isinstance(value, _NotKnownYet)]
        return None if any(value is None for value in known) else _NONE.union(*(one for one in known if one))

    def _value(self, text: str) -> Bases | _NotKnownYet:
        if "{" in text:
            return None
        if not text.startswith("%") and not self._writers.of(text):
            return frozenset({text}) if _NAME.fullmatch(text) else _NONE
        if text not in self._known:
            self._follow(text)
        return self._known[text]

    def _follow(self, register: str) -> None:
        """Follow all registers that one depends on until nothing changes."""
        order = self._behind(register)
        self._known.update((name, _LATER) for name in order if name not in self._known)
        for _ in range(_ROUNDS):
            changed = False
            for name in order:
                new = self._either([self._result(one) for one in self._writers.of(name)])
                changed |= new != self._known[name]
                self._known[name] = new
            if not changed:
                return
        self._known.update((name, None) for name in order)

    def _behind(self, register: str) -> list[str]:
        """The registers that the address in `register` is computed from and that are not known, itself last."""
        found: dict[str, None] = {}
        work = [register]
        while work:
            name = work.pop()
            if name not in found and name not in self._known:
                found[name] = None
                work += [text for one in self._writers.of(name) for text in self._sources(one) if text.startswith("%")]
        return list(found)[::-1]

    def _sources(self, one: Instruction) -> list[str]:
        """The operands that may bring a base into the result."""
        operands = [text.strip() for text in one.operands[1:]]
        if one.opcode in _NO_BASE or one.opcode == "ld":
            return []
        if one.opcode in _LAST_IS_ADDED:
            return operands[-1:]
        if one.opcode in ("selp", "shfl"):
            return operands[:2] if one.opcode == "selp" else operands[:1]
        return operands

    def _result(self, one: Instruction) -> Bases | _NotKnownYet:
        if one.opcode == "ld":
            return self._loaded(one)
        sources = self._sources(one)
        if one.opcode == "selp":
            return self._either([self._value(text) for text in sources])
        return self._sum(sources) if sources or one.opcode in _NO_BASE else None

    def _loaded(self, one: Instruction) -> Bases:
        name = one.operands[-1].strip(" []")
        if "param" in one.modifiers:
            return frozenset({name}) if name.partition("+")[0] in self._wide else _NONE
        return None if any(kind.endswith("64") for kind in one.modifiers) else _NONE  # a pointer, or an index

    @staticmethod
    def _either(values: list[Bases | _NotKnownYet]) -> Bases | _NotKnownYet:
        """What comes by one of several ways: an array of each of them, or anything if one has no base."""
        known = [value for value in values if not isinstance(value, _NotKnownYet)]
        if not known:
            return _LATER if values else _NONE
        if any(value is None for value in known) or len({bool(value) for value in known}) > 1:
            return None
        return _NONE.union(*(value for value in known if value))
