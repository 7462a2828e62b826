"""`Profiler`, the value that triton_dist kernels pass through their code, and `tid`.

Each group has its own track. The number of tracks is known only on the device, so the device divides the buffer into
tracks of `lines / (blocks * groups)` cache lines.

This module does not postpone annotations: Triton reads the types of an aggregate's fields from them.
"""

from typing import Any

import triton
import triton.language as tl
from triton.language import core

from warplens.compat.triton_dist.buffer import HEAD, HEAD_BYTES, HEAD_MAGIC
from warplens.compat.triton_records import BLOCK, emit, scalar, start_track, write_record
from warplens.errors import UsageError
from warplens.record.layout import HEADER_BYTES, MAX_REGION, MAX_WARPS, REGION_SHIFT, SLOT_BYTES, Kind

_AT = {name: int(HEAD.fields[name][1]) for name in HEAD.names}  # type: ignore[index, union-attr]

_OPEN = f"""
    setp.ne.b32 p, $5, 0; setp.ne.and.b64 p, $2, 0, p;
    mov.b32 t, 0; mov.b32 n, 0;
    @p ld.global.v2.b32 {{t, n}}, [$2+{_AT["magic"]}];
    setp.eq.and.b32 p, t, {HEAD_MAGIC}, p;{BLOCK}
    mov.u32 y, %nctaid.y; mov.u32 z, %nctaid.z; setp.eq.and.b32 q, b, 0, p;
    @q st.global.v4.b32 [$2+{_AT["grid"]}], {{x, y, z, $4}};
    mul.lo.u32 x, x, y; mul.lo.u32 x, x, z; mul.lo.u32 x, x, $4;
    div.u32 n, n, x; mad.lo.u32 k, b, $4, $3;
    setp.lt.and.u32 f, $3, $4, p; setp.ge.and.u32 f, n, 1, f;
    mul.wide.u32 c, n, {HEADER_BYTES}; cvt.u64.u32 a, k; mul.lo.u64 c, c, a;
    add.s64 c, c, $2; add.s64 c, c, {HEAD_BYTES};
    mov.b32 g, $3;"""
"""Sets c to this group's track, n to its cache lines, p if this thread is the leader, and f if the track exists."""

_CLOSE_OPEN = f"""
    sub.u32 n, n, 1; mul.lo.u32 n, n, {HEADER_BYTES // SLOT_BYTES};
    selp.b32 n, n, -1, f; selp.b64 c, c, $2, f; selp.b64 c, c, 0, p;
    mov.b64 $0, c; mov.b32 $1, n;"""
"""A leader without a track gets the address of the buffer and the capacity -1, and counts its lost records."""

_RECORD = f"""
    setp.ne.b64 p, $1, 0; setp.lt.and.s32 q, $2, 0, p;
    @q red.global.add.u32 [$1+{_AT["refused"]}], 1;
    setp.ge.and.s32 p, $2, 0, p; setp.lt.and.s32 f, $3, $2, p;
    mov.b64 c, $1; mov.b32 w, $3;"""


def tid(axis: Any, _semantic: Any = None) -> Any:
    """Return the thread's index within its block along axis 0, 1 or 2."""
    number = core._unwrap_if_constexpr(axis)
    if number not in (0, 1, 2):
        raise UsageError(f"tid({number!r}): the axis must be 0, 1 or 2")
    return emit(f"\n    mov.u32 $0, %tid.{'xyz'[number]};", "=r", [], tl.int32, _semantic, "tid")


def _open(profiler_buffer: Any, group_id: Any, num_groups: Any, is_leader: Any, _semantic: Any = None) -> Any:
    groups = core._unwrap_if_constexpr(num_groups)
    if isinstance(groups, int) and not 1 <= groups <= MAX_WARPS:
        raise UsageError(f"num_groups={groups}: must be within 1..{MAX_WARPS}")
    arguments = []
    if _semantic is not None:
        arguments = [
            scalar(profiler_buffer, tl.int64, "profiler_buffer", _semantic),
            scalar(group_id, tl.int32, "group_id", _semantic),
            scalar(num_groups, tl.int32, "num_groups", _semantic),
            scalar(is_leader, tl.int32, "is_leader", _semantic),
        ]
    body = _OPEN + start_track("f", "c", "b", "g") + _CLOSE_OPEN
    return emit(body, "=l,=r,l,r,r,r", arguments, (tl.int64, tl.int32), _semantic, "triton_dist's Profiler")


def _append(track: Any, capacity: Any, written: Any, is_start: Any, task_type: Any, _semantic: Any = None) -> Any:
    start = core._unwrap_if_constexpr(is_start)
    known = isinstance(start, bool | int)
    body = _RECORD + f"\n    add.u32 r, $4, 1; and.b32 r, r, {MAX_REGION}; shl.b32 r, r, {REGION_SHIFT};"
    # is_start may be known only on the device.
    body += f"\n    setp.ne.b32 q, $5, 0; selp.b32 t, {int(Kind.BEGIN)}, {int(Kind.END)}, q; or.b32 r, r, t;"
    body += write_record("p", "f", "c", "w", "r", begins=bool(known and start)) + "\n    mov.b32 $0, w;"
    arguments = [
        track,
        capacity,
        written,
        scalar(task_type, tl.int32, "task_type", _semantic),
        scalar(int(start) if known else start, tl.int32, "is_start", _semantic),
    ]
    return emit(body, "=r,l,r,r,r,r", arguments, tl.int32, _semantic, "triton_dist's Profiler")


for _function in (tid, _open, _append):
    setattr(_function, core.TRITON_BUILTIN, True)


@core._aggregate
class Profiler:
    """A group's position in the profiler buffer; `profiler = profiler.record(...)` advances it.

    track     the address of its track; 0 in threads that are not the leader
    capacity  the number of slots of the track
    written   the number of records so far
    """

    track: tl.tensor
    capacity: tl.tensor
    written: tl.tensor
    ENABLE_PROFILING: tl.constexpr

    @triton.constexpr_function  # the only kind of plain function that Triton allows in an aggregate
    def __init__(self, track, capacity, written, ENABLE_PROFILING):  # type: ignore[no-untyped-def]
        self.track = track
        self.capacity = capacity
        self.written = written
        self.ENABLE_PROFILING = tl.constexpr(ENABLE_PROFILING)

    @triton.jit
    def create(  # type: ignore[no-untyped-def]
        profiler_buffer, group_id, num_groups=1, is_leader=True, num_blocks=None, ENABLE_PROFILING=True
    ):
        tl.static_assert(
            num_blocks is None, "num_blocks is not supported: the number of blocks is taken from the launch"
        )
        track = tl.zeros((), tl.int64)
        capacity = tl.zeros((), tl.int32)
        written = tl.zeros((), tl.int32)
        if ENABLE_PROFILING:
            track, capacity = _open(profiler_buffer, group_id, num_groups, is_leader)
        return Profiler(track, capacity, written, ENABLE_PROFILING)

    @triton.jit
    def record(self, is_start, task_type):  # type: ignore[no-untyped-def]
        written = self.written
        if self.ENABLE_PROFILING:
            written = _append(self.track, self.capacity, self.written, is_start, task_type)
        return Profiler(self.track, self.capacity, written, self.ENABLE_PROFILING)
