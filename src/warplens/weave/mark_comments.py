"""Parse and print marks, the inert comments that front ends leave in PTX: `// @warplens B load`.

    B name            begin of a region
    E name            end of a region
    I name            an instant
    V name type reg   a value: the type and register (or immediate) that hold it
    A name tag        begin of an async span; tag is 0..31 or a .b32 register
    Z name tag        end of an async span
    T                 an anchor: ties the clock to the global timer here
    S name operation barrier parity extra guard
                      what the warp does with a barrier (see barrier_operands.py)

Names are percent-encoded, so that any text survives inline asm, LLVM and the PTX comment.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection
from dataclasses import dataclass
from typing import TypeGuard
from urllib.parse import quote, unquote

from warplens.ptx.syntax import PtxError
from warplens.ptx.tree import Comment, Node
from warplens.record.layout import MAX_TAG, WIDE_KINDS, Kind
from warplens.weave.barrier_operands import BarrierOperands

PREFIX = "@warplens "
ANCHOR = PREFIX + "T"

KINDS = {
    "B": Kind.BEGIN,
    "E": Kind.END,
    "I": Kind.INSTANT,
    "V": Kind.VALUE,
    "A": Kind.ASYNC_BEGIN,
    "Z": Kind.ASYNC_END,
    "T": Kind.ANCHOR,
    "S": Kind.VALUE,
}
VALUE_TYPES = ("s32", "u32", "s64", "u64", "f32", "f64")
_DECLARED = re.compile(r"%wl_mark_\d+_([A-Z])(\d+)")
_NUMBERED = re.compile(r"(// @warplens ([BEIVAZ]) #(\d+).*)")
_WORDS = {"B": 2, "E": 2, "I": 2, "V": 4, "A": 3, "Z": 3, "T": 1, "S": 7}
BARRIER = "barrier"
"""The value type of a mark that records what the warp does with a barrier."""
PAYLOAD = (Kind.VALUE, Kind.ANCHOR)
"""Marks whose record is preceded by an 8-byte payload."""
_PLAIN = re.compile(r"[\w.:+ -]*", re.ASCII)
"""Names of which only blanks have to be encoded."""
_NAMED = re.compile(r"//\s*" + PREFIX + r"[A-Z] (\S+)[^\n]*")
_REGISTER = re.compile(r"%[\w$]+|-?\d+|0[xfd][0-9A-Fa-f]+|-?[\d.]+(?:e[-+]?\d+)?")


@dataclass(frozen=True)
class Mark:
    """One mark: what it records, the operand of a value or async tag, and whether its record has a 64-bit clock."""

    kind: Kind
    name: str
    line: int
    operand: str = ""
    type: str = ""
    wide: bool = False
    barrier: BarrierOperands | None = None

    @property
    def slots(self) -> int:
        own = 2 if self.kind in PAYLOAD else 1
        # A 64-bit clock is the payload of the record, or of an extra pair before a record that has its own payload.
        return own + (0 if not self.wide else 1 if self.kind in WIDE_KINDS else 2)

    @property
    def shares_clock(self) -> bool:
        """Whether it can share the clock read of the mark right before it."""
        return self.barrier is not None or (not self.operand and self.kind not in PAYLOAD)

    @property
    def operands(self) -> tuple[str, ...]:
        """The registers and numbers that it reads."""
        return self.barrier.registers if self.barrier is not None else (self.operand,) if self.operand else ()


def encode_name(name: str) -> str:
    """Encode `name` as one word that is safe in inline asm and in a comment."""
    return name.replace(" ", "%20") if _PLAIN.fullmatch(name) else quote(name, safe="_.:+-")


def mark_text(letter: str, name: str, *operands: str) -> str:
    """The content of a mark's comment, without `//`; the inverse of `parse_mark`."""
    return PREFIX + " ".join((letter, encode_name(name), *operands))


def is_mark(node: Node | None) -> TypeGuard[Comment]:
    """Whether a node is the comment of a mark."""
    return isinstance(node, Comment) and node.content.startswith(PREFIX)


def parse_mark(content: str, line: int) -> Mark | None:
    if not content.startswith(PREFIX):
        return None
    words = content[len(PREFIX) :].split()
    letter = words[0] if words else ""
    if letter not in KINDS or len(words) != _WORDS[letter]:
        allowed = (
            "B, E or I with a name, V with name, type and register, A or Z with name and tag, T alone, S with six words"
        )
        raise PtxError(line, content, "unknown mark", f"allowed marks are {allowed}")
    name, operand, kind = unquote(words[1]) if len(words) > 1 else "", "", ""
    if letter == "V":
        kind, operand = words[2:]
        if kind not in VALUE_TYPES:
            raise PtxError(line, content, f"unknown value type {kind!r}", f"allowed: {', '.join(VALUE_TYPES)}")
    elif letter in "AZ":
        operand = words[2]
        if operand.isdigit() and int(operand) > MAX_TAG:
            raise PtxError(line, content, f"tag {operand} is too large", f"the allowed range is 0..{MAX_TAG}")
    elif letter == "S":
        return Mark(Kind.VALUE, name, line, type=BARRIER, barrier=_barrier(words[2:], content, line))
    if operand and not _REGISTER.fullmatch(operand):
        raise PtxError(line, content, f"{operand!r} is not a register or a number")
    return Mark(KINDS[letter], name, line, operand, kind)


def without_regions(text: str, names: Collection[str]) -> str:
    """Remove the marks of some regions from PTX."""
    left_out = {encode_name(name) for name in names} | set(names)

    def replaced(found: re.Match[str]) -> str:
        return "" if found[1] in left_out or unquote(found[1]) in left_out else found[0]

    return _NAMED.sub(replaced, text)


def _barrier(words: list[str], content: str, line: int) -> BarrierOperands:
    try:
        return BarrierOperands.parse(words)
    except ValueError as error:
        raise PtxError(line, content, str(error)) from None


def declare_marks(text: str) -> str:
    """Repeat each numbered mark as the declaration of a register that nothing uses: nvcc strips comments from the PTX
    that a program carries. A declaration adds no instruction."""
    numbers = itertools.count()
    return _NUMBERED.sub(lambda found: f"{found[1]}\n\t.reg .pred %wl_mark_{next(numbers)}_{found[2]}{found[3]};", text)


def declared_mark(register: str) -> tuple[Kind, str] | None:
    """The kind and region of a mark from the register that stands for it; None for other registers."""
    found = _DECLARED.fullmatch(register)
    return (KINDS[found[1]], f"#{found[2]}") if found and found[1] in KINDS else None
