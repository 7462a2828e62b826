"""The device side, for CuTe DSL kernels: events of `[start_ns, dur_ns, tag, tid]` after one counter.

A start only reads the timer and returns the time, which the caller passes to the stop. The stop reserves a place with
an atomic and writes the whole event. So only timer reads fall into the measured interval, and the start time is an
ordinary value that can cross loops, branches and `with` blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from warplens.frontends.cute.requirement import require_cute

require_cute()

from cutlass import Int32, Int64, Uint64, cute  # noqa: E402
from cutlass._mlir.dialects import llvm  # noqa: E402
from cutlass.base_dsl.typing import Numeric  # noqa: E402
from cutlass.cutlass_dsl import T, dsl_user_op  # noqa: E402

from warplens.compat.nuggets.host import WORDS  # noqa: E402
from warplens.errors import UsageError  # noqa: E402
from warplens.frontends.cute.asm import emit  # noqa: E402

__all__ = [
    "elected_start", "elected_stop", "lane0_warp0_start", "lane0_warp0_stop", "profile_region", "profile_start",
    "profile_stop", "read_globaltimer", "warp_start", "warp_stop",
]  # fmt: skip

_THREAD = """
    mov.u32 t, %tid.z; mov.u32 x, %ntid.y; mov.u32 y, %tid.y; mad.lo.u32 t, t, x, y;
    mov.u32 x, %ntid.x; mov.u32 y, %tid.x; mad.lo.u32 t, t, x, y;"""

_EVERYONE = "setp.eq.b32 p, 0, 0;"
_FIRST_THREAD = _THREAD + " setp.eq.b32 p, t, 0;"
_ONE_WARP = _THREAD + " shr.u32 x, t, 5; and.b32 y, t, 31; setp.eq.b32 p, y, 0; setp.eq.and.b32 p, x, $6, p;"
_PER_WARP = (
    "activemask.b32 x; neg.s32 y, x; and.b32 x, x, y; mov.u32 y, %laneid; mov.b32 t, 1; shl.b32 t, t, y; "
    "setp.eq.b32 p, t, x;"
)


def _read_globaltimer(*, loc: Any = None, ip: Any = None) -> Any:
    """Read the GPU's nanosecond timer as an Int64."""
    result = llvm.inline_asm(
        T.i64(),
        [],
        "mov.u64 $0, %globaltimer;",
        "=l,~{memory}",
        has_side_effects=True,
        is_align_stack=False,
        asm_dialect=llvm.AsmDialect.AD_ATT,
        loc=loc,
        ip=ip,
    )
    return Int64(result)


read_globaltimer: Callable[..., Any] = dsl_user_op(_read_globaltimer)


def profile_start(buf: Any, max_events: Any) -> Any:
    """Begin an event; pass the result to `profile_stop`."""
    _address(buf)
    return read_globaltimer()


def profile_stop(buf: Any, eid: Any, tag: Any, tid: Any, max_events: Any) -> None:
    """End an event, recorded by every thread that gets here."""
    _stop(_EVERYONE, buf, eid, tag, tid, max_events)


lane0_warp0_start = profile_start
elected_start = profile_start


def lane0_warp0_stop(buf: Any, eid: Any, tag: Any, tid: Any, max_events: Any) -> None:
    """End an event, recorded by lane 0 of warp 0 of each block only."""
    _stop(_FIRST_THREAD, buf, eid, tag, tid, max_events)


def elected_stop(buf: Any, eid: Any, tag: Any, tid: Any, max_events: Any) -> None:
    """End an event, recorded by one lane of each warp."""
    _stop(_PER_WARP, buf, eid, tag, tid, max_events)


def warp_start(buf: Any, max_events: Any, target_warp: Any = 0) -> Any:
    """Begin an event of one warp."""
    return profile_start(buf, max_events)


def warp_stop(buf: Any, eid: Any, tag: Any, tid: Any, max_events: Any, target_warp: Any = 0) -> None:
    """End an event, recorded by lane 0 of warp `target_warp` only."""
    _stop(_ONE_WARP, buf, eid, tag, tid, max_events, target_warp)


class profile_region:
    """`with profile_region(buf, max_events, tag, tid):` records its body, from lane 0 of warp 0 or of `target_warp`.

    The body can read and assign outer variables like any other block.
    """

    def __init__(self, buf: Any, max_events: Any, tag: Any, tid: Any, target_warp: Any = None) -> None:
        self.buf, self.max_events, self.tag, self.tid, self.warp = buf, max_events, tag, tid, target_warp

    def __enter__(self) -> None:
        self.start = profile_start(self.buf, self.max_events)

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            return
        if self.warp is None:
            lane0_warp0_stop(self.buf, self.start, self.tag, self.tid, self.max_events)
        else:
            warp_stop(self.buf, self.start, self.tag, self.tid, self.max_events, self.warp)


def _stop(who: str, buf: Any, eid: Any, tag: Any, tid: Any, max_events: Any, warp: Any = 0) -> None:
    """Write an event. The counter includes events that do not fit; nothing is written past the end of the buffer."""
    capacity = Int64((cute.size(buf) - 1) // WORDS)
    numbers = [
        Int64(_number(v, what)) for v, what in ((eid, "eid"), (tag, "tag"), (tid, "tid"), (max_events, "max_events"))
    ]
    operands = [_address(buf), *(number.ir_value() for number in numbers), capacity.ir_value()]
    operands.append(Int32(_number(warp, "target_warp")).ir_value())
    emit(
        f"""{{
    .reg .pred p; .reg .b32 t, x, y; .reg .b64 a, d, e, n;
    mov.u64 e, %globaltimer; sub.s64 e, e, $1;
    {who}
    mov.b64 n, 0; @p atom.global.add.u64 n, [$0], 1;
    min.s64 d, $4, $5; setp.lt.and.s64 p, n, d, p;
    shl.b64 a, n, 5; add.s64 a, a, $0;
    @p st.global.b64 [a+8], $1; @p st.global.b64 [a+16], e;
    @p st.global.b64 [a+24], $2; @p st.global.b64 [a+32], $3;
}}""",
        operands,
        "l,l,l,l,l,l,r",
    )


def _address(buf: Any) -> Any:
    """Return the address of the profile buffer, a tensor of 64-bit integers."""
    kind = getattr(buf, "element_type", None)
    if kind not in (Int64, Uint64):
        of = f"a tensor of {kind}" if kind is not None else f"a {type(buf).__name__}"
        raise UsageError(f"the profile buffer is {of}; pass the int64 tensor of allocate_profile_buffer")
    return buf.iterator.toint().ir_value()


def _number(v: Any, what: str) -> Any:
    if not isinstance(v, (int, Numeric)):
        raise UsageError(f"{what} is a {type(v).__name__}; expected a number or an Int32")
    return v
