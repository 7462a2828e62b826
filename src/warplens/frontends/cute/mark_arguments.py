"""What kernels give to marks: names known while the kernel is traced, and numbers as operands of inline asm."""

from __future__ import annotations

from typing import Any

from cutlass import Float32, Float64, Int32, Int64, Uint32, Uint64
from cutlass._mlir import ir
from cutlass.base_dsl.typing import Boolean, Float, Integer, Numeric, as_numeric

from warplens.errors import UsageError
from warplens.record.barrier_words import MAX_BARRIER
from warplens.record.layout import MAX_TAG, ValueType


def mark_name(name: Any, what: str) -> str:
    if not isinstance(name, str) or not name:
        raise UsageError(f"{what}: the name must be a string known at compile time, not {_shown(name)}")
    return name


def checked_tag(name: str, tag: Any) -> Any:
    if isinstance(tag, bool) or not isinstance(tag, (int, Integer)):
        raise UsageError(f"tag {_shown(tag)} of {name!r}: give a number 0..{MAX_TAG} or an Int32 of the kernel")
    if isinstance(tag, int):
        if not 0 <= tag <= MAX_TAG:
            raise UsageError(f"tag {tag} of {name!r}: allowed are 0..{MAX_TAG}")
        return tag
    return Int32(tag)


def whole_number(name: str, v: Any) -> Any:
    """An int, or an integer of the kernel; a pointer counts as its address."""
    v = v.toint() if hasattr(v, "toint") else v
    if isinstance(v, bool) or not isinstance(v, (int, Integer)):
        raise UsageError(f"{name!r} got {_shown(v)}: give a pointer in shared memory or a whole number")
    return v


def check_barrier(name: str, barrier: int) -> None:
    if not 0 <= barrier <= MAX_BARRIER:
        raise UsageError(f"barrier {barrier} of {name!r}: allowed are 0..{MAX_BARRIER}")


def scalar(name: str, v: Any) -> tuple[Any, str, ValueType]:
    """`v` as an operand, of 32 bits if it is a small integer and else of 64; its constraint; and how it reads.

    A pointer counts as its address.
    """
    operand, constraint, kind = typed_scalar(name, v)
    return (Float64(Float32(v)).ir_value(), "d", kind) if constraint == "f" else (operand, constraint, kind)


def typed_scalar(name: str, v: Any) -> tuple[Any, str, ValueType]:
    """The same, but a number of 32 bits or fewer stays one, so that it needs no conversion."""
    v = v.toint() if hasattr(v, "toint") else v
    v = as_numeric(v) if isinstance(v, ir.Value) else v
    if isinstance(v, (bool, int)):
        if not -(1 << 63) <= v < 1 << 64:
            raise UsageError(f"value {name!r} is {v}: it does not fit in 64 bits")
        if v >= 1 << 63:
            return Int64(v - (1 << 64)).ir_value(), "l", ValueType.U64
        return Int64(int(v)).ir_value(), "l", ValueType.I64
    if isinstance(v, float):
        return Float64(v).ir_value(), "d", ValueType.F64
    if isinstance(v, Boolean):
        return Int32(v).ir_value(), "r", ValueType.I64
    if isinstance(v, Integer):
        kind = ValueType.I64 if type(v).signed else ValueType.U64
        if type(v).width <= 32:
            return (Int32 if type(v).signed else Uint32)(v).ir_value(), "r", kind
        return (Int64 if type(v).signed else Uint64)(v).ir_value(), "l", kind
    if isinstance(v, (Float, Numeric)):
        if type(v).width <= 32:
            return Float32(v).ir_value(), "f", ValueType.F64
        return Float64(v).ir_value(), "d", ValueType.F64
    raise UsageError(f"value {name!r} is {_shown(v)}: give one number, such as an element of a tensor")


def _shown(v: Any) -> str:
    return repr(v) if isinstance(v, (str, int, float, type(None))) else f"a {type(v).__name__} of the kernel"
