"""Marks in kernels without `wlc.kernel`: comments in the PTX, which become records when warplens weaves the kernel."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from cutlass import Int32
from cutlass._mlir import ir

from warplens.frontends.cute.asm import call_site, emit
from warplens.frontends.cute.mark_arguments import check_barrier, typed_scalar, whole_number
from warplens.frontends.cute.ptx_keeper import keep_ptx_of_this
from warplens.frontends.cute.trace_state import MarkedKernel
from warplens.frontends.driver_calls.loaded_code import expect_hand_marks
from warplens.frontends.registry import attach
from warplens.record.barrier_words import Operation
from warplens.record.layout import Kind, ValueType
from warplens.session import active
from warplens.weave.barrier_operands import NO_OPERAND
from warplens.weave.mark_comments import ANCHOR, KINDS, mark_text

LETTERS = {kind: letter for letter, kind in KINDS.items() if letter != "S"}
_TYPES = {
    ("r", ValueType.I64): "s32",
    ("r", ValueType.U64): "u32",
    ("l", ValueType.I64): "s64",
    ("l", ValueType.U64): "u64",
    ("f", ValueType.F64): "f32",
    ("d", ValueType.F64): "f64",
}


class InertMarks(MarkedKernel):
    """A kernel that is compiled as if it had no marks."""

    def mark(self, kind: Kind, name: str) -> None:
        self.note(kind, name)
        self._leave(mark_text(LETTERS[kind], name))

    def tagged(self, kind: Kind, name: str, tag: Any) -> None:
        self.note(kind, name)
        if isinstance(tag, int):
            self._leave(mark_text(LETTERS[kind], name, str(tag)))
        else:
            self._leave(mark_text(LETTERS[kind], name, "$0"), [tag.ir_value()], "r")

    def value(self, name: str, v: Any) -> None:
        self._leave(*value_mark(name, v))

    def barrier(self, operation: Operation, name: str, barrier: Any, parity: Any) -> None:
        which, phase = whole_number(name, barrier), whole_number(name, parity)
        given, constraints = [], ""
        if isinstance(which, int):
            check_barrier(name, which)
            place = f"number:{which}"
        else:
            wide = type(which).width > 32
            given, constraints, place = [which.ir_value()], "l" if wide else "r", "u64:$0" if wide else "u32:$0"
        if isinstance(phase, int):
            bit = str(phase & 1)
        else:
            bit, constraints = f"${len(given)}", constraints + "r"
            given.append(Int32(phase).ir_value())
        words = operation.name.lower(), place, bit, NO_OPERAND, NO_OPERAND
        self._leave(mark_text("S", name, *words), given, ",".join(constraints))

    def anchor(self) -> None:
        self._leave(ANCHOR)

    def _leave(self, text: str, operands: Sequence[Any] = (), constraints: str = "") -> None:
        leave(text, operands, constraints, loc=_line())


def leave(text: str, operands: Sequence[Any] = (), constraints: str = "", **where: Any) -> None:
    """Leave a mark here, and have the function that is being compiled keep the PTX that it is in."""
    options = keep_ptx_of_this()
    if getattr(options, "enable_tvm_ffi", False):  # its launches are seen by the hooks in front of the driver
        expect_hand_marks("cutlass")
        attach("warplens")
    if options is None and (running := active()) is not None:
        running.note(
            "cutlass",
            "the marks of warplens were imported inside a function that was being compiled, so those of that function "
            "are not recorded; import them at the top of the file",
        )
    emit(f"// {text}", operands, constraints, **where)


def value_mark(name: str, v: Any) -> tuple[str, list[Any], str]:
    """The text of a value's mark, its operands and their constraints. A constant stands in the text."""
    if isinstance(v, (bool, int)) and -(1 << 63) <= v < 1 << 63:
        return mark_text("V", name, "s64", str(int(v))), [], ""
    if isinstance(v, float):
        return mark_text("V", name, "f64", "0d" + struct.pack(">d", v).hex()), [], ""
    operand, constraint, kind = typed_scalar(name, v)
    return mark_text("V", name, _TYPES[constraint, kind], "$0"), [operand], constraint


def _line() -> Any:
    """The user's line, as the location of a mark."""
    frame = call_site()
    return ir.Location.file(frame.f_code.co_filename, frame.f_lineno, 0) if frame else None
