"""Inline asm in the kernel being traced, and where in the user's source that is."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

from cutlass._mlir import ir
from cutlass._mlir.dialects import llvm
from cutlass.cutlass_dsl import dsl_user_op

_OURS = str(Path(__file__).resolve().parent)
_DSL = str(Path(sys.modules["cutlass"].__file__ or "").resolve().parent)


def _emit(text: str, operands: Sequence[Any] = (), constraints: str = "", *, loc: Any = None, ip: Any = None) -> None:
    """PTX at this place of the kernel; it stays in order with memory accesses and other marks."""
    llvm.inline_asm(
        None,
        list(operands),
        text,
        ",".join([*(constraints.split(",") if constraints else ()), "~{memory}"]),
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )


emit: Callable[..., None] = dsl_user_op(_emit)
"""`_emit` with the source line of the mark as its location."""


def enclosing() -> tuple[Any, Any]:
    """The kernel that is being traced and the block code now goes to; (None, None) outside a kernel."""
    try:
        block = ir.InsertionPoint.current.block
    except ValueError:
        return None, None
    operation = block.owner
    while operation is not None and operation.operation.name not in ("cuda.kernel", "gpu.func"):
        operation = operation.operation.parent
    return operation, block


def last_operation(block: Any) -> Any:
    """The operation that the next one follows, None where it is the first."""
    operations = block.operations
    return operations[len(operations) - 1].operation if len(operations) else None


def call_site() -> FrameType | None:
    """The frame of the user's code: the innermost that is neither ours nor the DSL's."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and frame.f_code.co_filename.startswith((_OURS, _DSL)):
        frame = frame.f_back
    return frame
