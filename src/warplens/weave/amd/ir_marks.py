"""Marks in LLVM IR: calls of inline assembly whose text is a comment, `; @warplens B load`.

    %13 = tail call i32 asm sideeffect "; @warplens V n s32 $1", "=s,s,~{memory}"(i32 %2) #5, !dbg !11

The comment is no instruction. Triton wants a result, which nothing uses.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from warplens.ptx.syntax import PtxError
from warplens.weave.mark_comments import PREFIX, Mark, parse_mark

_CALL = re.compile(
    r'\s*(?:(?P<result>%[\w.$]+) = )?(?:tail |notail )?call \w+ asm sideeffect "; (?P<text>@warplens [^"]*)", '
    r'"[^"]*"\((?P<operands>[^)]*)\)'
)
_PLACE = re.compile(r"\$(\d+)")


@dataclass(frozen=True)
class IrMark:
    """A mark, the LLVM value and type that it reads, and the name of the call's result."""

    mark: Mark
    value: str = ""
    type: str = ""
    result: str = ""


def ir_mark(text: str) -> IrMark | None:
    """The mark of one line of LLVM IR; None for any other line."""
    if PREFIX not in text:
        return None
    found = _CALL.match(text)
    if found is None:
        raise PtxError(1, text, "this mark is not a call of inline assembly", "write marks with warplens.triton")
    operands = [tuple(one.split()) for one in found["operands"].split(",") if one.strip()]
    # In place of an operand that the comment names goes a register, which the parser of marks expects.
    mark = parse_mark(_PLACE.sub(r"%\1", found["text"]), 1)
    assert mark is not None, "the text has the prefix of marks"
    if not mark.operand.startswith("%"):
        return IrMark(mark, result=found["result"] or "")
    *kind, value = operands[int(mark.operand[1:]) - 1]
    return IrMark(mark, value, kind[0], found["result"] or "")
