"""The kernel that is being traced: with `wlc.kernel` it records by itself, without it its marks are comments.

A trace ends when the kernel's function returns; the DSL then adds the return operation. `watch_returns` puts the exit
of a recording in front of it, so that kernels need no closing call.
"""

from __future__ import annotations

import functools
import inspect
import os
from collections.abc import Collection
from types import FrameType
from typing import Any

from cutlass import Boolean, Int32, Int64, Uint64
from cutlass._mlir import ir
from cutlass.base_dsl.typing import Numeric
from cutlass.cutlass_dsl import CuTeDSL

from warplens import session
from warplens.errors import UsageError, did_you_mean
from warplens.frontends.cute import record_ptx
from warplens.frontends.cute.asm import call_site, emit, enclosing
from warplens.frontends.cute.buffer_argument import Argument, Buffer
from warplens.frontends.cute.inert_marks import InertMarks
from warplens.frontends.cute.trace_state import Recording, settle
from warplens.ptx.symbols import plain_name
from warplens.record.layout import MAX_WARPS

LEADERS = ("lane0", "elected", "warp0")


_current: Recording | InertMarks | None = None


def kernel(
    prof: Any,
    *,
    leader: Any = "lane0",
    warps: int | Collection[int] | None = None,
    full: str | None = None,
    enabled: bool = True,
) -> Recording:
    """Let this kernel write its records itself; its first line. `prof` is its argument made with `wlc.buffer`.

    leader   "lane0" (of each warp), "elected" (each warp's first active lane), "warp0" (warp 0 only), or a condition:
             the first lane of a warp for which it holds records
    warps    record only these warps of each block
    full     `stop` keeps a track's first records, `ring` its latest; the running profile's unless given
    enabled  False leaves no instruction behind
    """
    global _current
    operation, block = enclosing()
    frame = call_site()
    where = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
    if operation is None:
        raise UsageError("wlc.kernel(prof) belongs inside a @cute.kernel function, on its first line")
    if isinstance(_current, InertMarks) and _current.operation == operation:
        raise UsageError(f"{where[0]}:{where[1]}: a mark comes before wlc.kernel(prof); put it on the first line")
    if _current is not None and _current.operation == operation:
        raise UsageError(f"{where[0]}:{where[1]}: this kernel already has a wlc.kernel at line {_current.where[1]}")
    if block.owner.operation.name != operation.operation.name:
        raise UsageError(
            f"{where[0]}:{where[1]}: wlc.kernel must not be inside a loop or branch; put it on the first line"
        )
    name = _name_of(frame) if frame else "kernel"
    if not enabled or prof is None or _switched_off():
        _current = Recording(operation, name, where, enabled=False)
        return _current
    operands, sized = _operands(prof)
    choice, condition = _leader(leader, warps)
    mode = _full(full)
    _current = Recording(operation, name, where, enabled=True, full=mode, leader=choice, operands=operands, sized=sized)
    if isinstance(prof, Argument):
        prof.host.kernel = prof.host.kernel or name
    # The declaration goes first, so that no block of the kernel can be placed ahead of it.
    emit(record_ptx.DECLARE, ip=ir.InsertionPoint.at_block_begin(block))
    emit(record_ptx.prologue(choice, mode, sized=sized), (*operands, condition), "l,l,r")
    return _current


def current(what: str) -> Recording | InertMarks:
    """What a mark belongs to; refuses one outside a kernel or behind the end of a recording."""
    global _current
    operation, block = enclosing()
    if operation is None:
        raise UsageError(f"{what} belongs inside a @cute.kernel function")
    if _current is None or _current.operation != operation:
        frame = call_site()
        where = (frame.f_code.co_filename, frame.f_lineno) if frame else ("", 0)
        _current = InertMarks(operation, _symbol(operation), where, enabled=not _switched_off())
    if _current.closed:
        raise UsageError(f"{what} comes after the end of `with wlc.kernel(prof):`; put it inside")
    if _current.enabled and isinstance(_current, Recording):
        settle(block)
    return _current


def _switched_off() -> bool:
    return os.environ.get("WARPLENS", "") == "0"


def _symbol(operation: Any) -> str:
    """The name of a kernel whose marks may stand in another function."""
    return plain_name(str(operation.operation.attributes["sym_name"]).strip('"'))


def _name_of(frame: FrameType) -> str:
    """The kernel's function; with its class where it is a method, since those tend to be called `kernel`."""
    owner = frame.f_locals.get("self")
    name = frame.f_code.co_name
    return name if owner is None else f"{type(owner).__name__}.{name}"


def _operands(prof: Any) -> tuple[tuple[Any, Any], bool]:
    """The buffer's address and sizes as operands; whether the sizes are known without a load."""
    if isinstance(prof, Argument):
        return (prof.values[0], prof.values[1]), True
    if isinstance(prof, (Int64, Uint64)):
        return (prof.ir_value(), Int64(0).ir_value()), False
    if isinstance(prof, Buffer):
        raise UsageError("pass the buffer to the kernel as an argument; wlc.kernel takes the kernel's own parameter")
    kind = getattr(prof, "element_type", None)
    of = f" of {kind}" if kind is not None else ""
    raise UsageError(
        f"wlc.kernel(prof) got a {type(prof).__name__}{of}; it takes the kernel's parameter that the host made with "
        "wlc.buffer(), or an Int64 from Buffer.address()"
    )


def _leader(leader: Any, warps: int | Collection[int] | None) -> tuple[record_ptx.Leader, Any]:
    """The choice, and the operand with its condition."""
    chosen: tuple[int, ...] | None = None
    if warps is not None:
        chosen = (warps,) if isinstance(warps, int) else tuple(warps)
        if not chosen or any(not isinstance(w, int) or not 0 <= w < MAX_WARPS for w in chosen):
            raise UsageError(f"warps={warps!r}: name warps of a block, 0..{MAX_WARPS - 1}, as constants")
    nothing = Int32(0).ir_value()
    if isinstance(leader, str):
        if leader not in LEADERS:
            raise UsageError(
                f"leader={leader!r}: allowed are a condition and one of {LEADERS}{did_you_mean(leader, LEADERS)}"
            )
        if leader == "warp0":
            if chosen is not None:
                raise UsageError("leader='warp0' and warps= exclude each other; give one of them")
            return record_ptx.Leader(warps=(0,)), nothing
        if leader == "elected":
            return record_ptx.Leader(chosen=True, warps=chosen), Int32(1).ir_value()
        return record_ptx.Leader(warps=chosen), nothing
    if not isinstance(leader, (bool, Numeric)):
        raise UsageError(f"leader={leader!r}: allowed are a condition and one of {LEADERS}")
    return record_ptx.Leader(chosen=True, warps=chosen), Int32(Boolean(leader)).ir_value()


def _full(full: str | None) -> str:
    if full is None:
        profile = session.active()
        return profile.options.full if profile is not None else "stop"
    if full not in ("stop", "ring"):
        raise UsageError(f"full={full!r}: allowed are 'stop' and 'ring'")
    return full


@functools.cache
def watch_returns() -> None:
    """End the recording of each kernel where the DSL returns from it."""
    original = CuTeDSL.generate_func_ret_op

    @functools.wraps(original)
    def generate_func_ret_op(*arguments: Any, **options: Any) -> Any:
        global _current
        operation, _ = enclosing()
        if _current is not None and _current.operation == operation:
            _current.close()
            _current = None
        return original(*arguments, **options)

    # A static method in 4.5, one of the instance later.
    static = isinstance(inspect.getattr_static(CuTeDSL, "generate_func_ret_op"), staticmethod)
    CuTeDSL.generate_func_ret_op = staticmethod(generate_func_ret_op) if static else generate_func_ret_op
