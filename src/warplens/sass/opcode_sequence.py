"""Recognise machine code in the listings of other tools by the sequence of its opcodes."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def opcode_fingerprint(texts: Iterable[str]) -> str:
    """A short hash of the sequence of opcodes, without modifiers, which listings of other versions spell differently,
    and without the padding behind the last exit."""
    opcodes = [opcode_of(text).partition(".")[0] for text in texts]
    while opcodes and opcodes[-1] in ("NOP", "BRA", ""):
        opcodes.pop()
    return hashlib.sha256(" ".join(opcodes).encode()).hexdigest()[:16] if opcodes else ""


def opcode_of(text: str) -> str:
    """The opcode of an instruction as listings print it, behind its predicate."""
    words = text.split()
    at = 1 if words and words[0].startswith("@") else 0
    return words[at].rstrip(";") if len(words) > at else ""
