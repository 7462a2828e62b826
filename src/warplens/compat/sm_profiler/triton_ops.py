"""The SM Profiler library's Triton functions, on the buffer of `SmProfiler`.

The first thread of the block records. The header of a track holds its write position, as in `sm_profiler.h`, so a group
must belong to one program. Records from blocks, groups or events outside the profiler's limits are counted as rejected.
"""

from __future__ import annotations

from typing import Any

from warplens.frontends.triton.requirement import require_triton

require_triton()

import triton.language as tl  # noqa: E402
from triton.language import core  # noqa: E402

from warplens.compat.sm_profiler import MAX_EVENTS  # noqa: E402
from warplens.compat.triton_records import emit, scalar, start_track, write_record  # noqa: E402
from warplens.record.launch_buffer import BUFFER, BUFFER_BYTES  # noqa: E402
from warplens.record.layout import HEADER_AT, REGION_SHIFT, TRACK_MAGIC, Kind  # noqa: E402

__all__ = ["profiler_event_end", "profiler_event_instant", "profiler_event_start", "profiler_init"]

_HEAD = {name: int(BUFFER.fields[name][1]) for name in BUFFER.names}  # type: ignore[index, union-attr]


def profiler_init(buffer_ptr: Any, _semantic: Any = None) -> Any:
    """Return the context that the event functions take."""
    return buffer_ptr


def profiler_event_start(ctx: Any, block_idx: Any, group_idx: Any, event_no: Any, _semantic: Any = None) -> None:
    """Begin a range of `event_no`; ranges may nest."""
    _event(Kind.BEGIN, ctx, block_idx, group_idx, event_no, _semantic)


def profiler_event_end(ctx: Any, block_idx: Any, group_idx: Any, event_no: Any, _semantic: Any = None) -> None:
    """End the range of `event_no`."""
    _event(Kind.END, ctx, block_idx, group_idx, event_no, _semantic)


def profiler_event_instant(ctx: Any, block_idx: Any, group_idx: Any, event_no: Any, _semantic: Any = None) -> None:
    """Record `event_no` as an instant."""
    _event(Kind.INSTANT, ctx, block_idx, group_idx, event_no, _semantic)


for _function in (profiler_init, profiler_event_start, profiler_event_end, profiler_event_instant):
    setattr(_function, core.TRITON_BUILTIN, True)

_FIND = f"""
    mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; setp.ne.and.b64 p, $1, 0, p;
    mov.b32 x, 0; mov.b32 y, 0; mov.b32 z, 0; mov.b32 k, 0;
    @p ld.global.v4.b32 {{x, y, z, k}}, [$1+{_HEAD["capacity"]}];
    setp.ne.and.b32 p, z, 0, p;
    setp.lt.and.u32 q, $2, z, p; setp.lt.and.u32 q, $3, k, q; setp.lt.and.u32 q, $4, {MAX_EVENTS}, q;
    mad.lo.u32 n, $2, k, $3; setp.lt.and.u32 q, n, z, q;
    not.pred f, q; and.pred f, f, p;
    @f red.global.add.u32 [$1+{_HEAD["refused"]}], 1;
    mul.wide.u32 c, n, y; add.s64 c, c, $1; add.s64 c, c, {BUFFER_BYTES};
    mov.b32 t, 0; @q ld.volatile.global.b32 t, [c];
    setp.ne.and.b32 f, t, {TRACK_MAGIC}, q;"""
"""Sets c to the track, x to its capacity, q if this thread records, and f if this is the track's first record."""


def _event(kind: Kind, ctx: Any, block_idx: Any, group_idx: Any, event_no: Any, semantic: Any) -> None:
    body = (
        _FIND
        + start_track("f", "c", "$2", "$3")
        + f"""
    mov.b32 w, 0; @q ld.volatile.global.b32 w, [c+{HEADER_AT["written"]}];
    setp.lt.and.u32 f, w, x, q;
    add.u32 r, $4, 1; shl.b32 r, r, {REGION_SHIFT}; or.b32 r, r, {int(kind)};"""
        + write_record("q", "f", "c", "w", "r", begins=kind is Kind.BEGIN)
        + "\n    mov.b32 $0, w;"
    )
    arguments = []
    if semantic is not None:
        arguments = [scalar(ctx, tl.int64, "the profiler's buffer", semantic)]
        for name, given in (("block_idx", block_idx), ("group_idx", group_idx), ("event_no", event_no)):
            arguments.append(scalar(given, tl.int32, name, semantic))
    emit(body, "=r,l,r,r,r", arguments, tl.int32, semantic, "sm_profiler.triton_ops")
