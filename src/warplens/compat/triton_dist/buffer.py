"""The buffer that triton_dist kernels take as an argument: a head that host and device share, then tracks."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.decode import decode
from warplens.errors import UsageError, WarplensError
from warplens.export import perfetto
from warplens.record.capture import Capture, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, MAX_SLOTS, SLOT_BYTES
from warplens.trace.model import Trace

HEAD_MAGIC = 0x31445457  # "WTD1"
HEAD_BYTES = 128
HEAD = np.dtype(
    {
        "names": ["magic", "lines", "refused", "grid", "groups"],
        "formats": ["<u4", "<u4", "<u4", "(3,)<u4", "<u4"],
        "offsets": [0, 4, 8, 16, 28],
        "itemsize": HEAD_BYTES,
    }
)
"""The host writes the number of cache lines that follow; the device its grid, its groups and the rejected records."""

SUFFIX = ".perfetto-trace"
_EXTRA_TRACKS = (4096, 1 << 17)
"""Minimum and maximum number of track headers to add space for, because callers count only the record slots."""

_export_trace = True


def set_export_trace_on() -> None:
    """Make `ProfilerBuffer` write its trace when its block ends (the default)."""
    global _export_trace
    _export_trace = True


def set_export_trace_off() -> None:
    """Stop `ProfilerBuffer` from writing traces."""
    global _export_trace
    _export_trace = False


def get_export_trace_on() -> bool:
    return _export_trace


def alloc_profiler_buffer(max_num_profile_slots: int) -> Any:
    """Allocate a device tensor for `max_num_profile_slots` records over all blocks."""
    if not 1 <= max_num_profile_slots <= 1 << 31:
        raise UsageError(f"max_num_profile_slots={max_num_profile_slots}: must be within 1..{1 << 31}")
    try:
        import torch
    except ImportError:
        raise WarplensError("the profiler buffer is a torch tensor: pip install torch") from None
    tracks = min(max(max_num_profile_slots, _EXTRA_TRACKS[0]), _EXTRA_TRACKS[1])
    # Each track needs a header, and up to one cache line is lost to rounding.
    lines = -(-max_num_profile_slots * SLOT_BYTES // HEADER_BYTES) + 2 * tracks
    size = (HEAD_BYTES + lines * HEADER_BYTES) // SLOT_BYTES
    return reset_profiler_buffer(torch.zeros(size, dtype=torch.int64, device="cuda"))


def reset_profiler_buffer(profiler_buffer: Any) -> Any:
    """Clear the buffer for the next launch."""
    import torch

    head = np.zeros(1, HEAD)
    head["magic"] = HEAD_MAGIC
    head["lines"] = (profiler_buffer.numel() * SLOT_BYTES - HEAD_BYTES) // HEADER_BYTES
    profiler_buffer.zero_()
    profiler_buffer[: HEAD_BYTES // SLOT_BYTES].copy_(torch.from_numpy(head.view(np.int64).copy()))
    return profiler_buffer


class ProfilerBuffer:
    """`with ProfilerBuffer(...) as buffer:` clears the buffer, and writes `<trace_file>.perfetto-trace` at the end."""

    def __init__(self, max_num_profile_slots: int, trace_file: str, task_names: Sequence[str]) -> None:
        self.trace_file, self.task_names = trace_file, list(task_names)
        self.profiler_buffer = alloc_profiler_buffer(max_num_profile_slots)

    def __enter__(self) -> Any:
        return reset_profiler_buffer(self.profiler_buffer)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if _export_trace and error is None:
            export_to_perfetto_trace(self.profiler_buffer, self.task_names, self.trace_file)


def to_trace(profiler_buffer: Any, task_names: Sequence[str]) -> Trace:
    """Decode what the last launch recorded; print how many records were lost, and the remedy."""
    raw = np.ascontiguousarray(profiler_buffer.cpu().numpy()).view(np.uint8)
    head = raw[:HEAD_BYTES].view(HEAD)[0]
    groups, grid = int(head["groups"]), tuple(int(size) for size in head["grid"])
    if int(head["magic"]) != HEAD_MAGIC:
        raise WarplensError("not a profiler buffer; create one with alloc_profiler_buffer(...)")
    if not groups:
        raise WarplensError(
            "the profiler buffer is empty: no leader of block 0 reached Profiler.create; "
            "check that the kernel ran, is_leader and ENABLE_PROFILING"
        )
    tracks = grid[0] * grid[1] * grid[2] * groups
    lines = int(head["lines"]) // tracks
    stride = max(lines, 1) * HEADER_BYTES
    body = raw[HEAD_BYTES : HEAD_BYTES + (tracks * stride if lines else 0)]
    _clear_stale_tracks(body.reshape(-1, stride), groups)
    capacity = min((max(lines, 1) - 1) * HEADER_BYTES // SLOT_BYTES, MAX_SLOTS)
    launch = Launch(
        kernel="kernel",
        grid=(grid[0], grid[1], grid[2]),
        block=(32 * groups, 1, 1),
        regions={number + 1: name for number, name in enumerate(task_names)},
        capacity=capacity,
        raw=body,
        stride=stride,
    )
    trace = decode(Capture([launch]))
    lost = trace.meta.losses.records_lost + int(head["refused"])
    if lost:
        _print_losses(lost, body.reshape(-1, stride), tracks)
    return trace


def export_to_perfetto_trace(
    profiler_buffer: Any, task_names: Sequence[str], file_name: str | os.PathLike[str], verbose: bool = False
) -> Path:
    """Write the last launch to `<file_name>.perfetto-trace`."""
    trace = to_trace(profiler_buffer, task_names)
    name = os.fspath(file_name)
    path = Path(name if name.endswith(SUFFIX) else name + SUFFIX)
    perfetto.write(trace, path)
    if verbose:
        print(f"{path}: {len(trace)} spans from {trace.meta.losses.tracks} thread groups")
    return path


def _clear_stale_tracks(tracks: npt.NDArray[np.uint8], groups: int) -> None:
    """Clear tracks that an earlier launch with a different grid left behind."""
    headers = np.ascontiguousarray(tracks[:, :HEADER_BYTES]).view(HEADER).reshape(-1)
    place = np.arange(len(headers))
    stale = (headers["magic"] != 0) & ((headers["block"] != place // groups) | (headers["warp"] != place % groups))
    tracks[stale] = 0


def _print_losses(lost: int, rows: npt.NDArray[np.uint8], tracks: int) -> None:
    headers = np.ascontiguousarray(rows[:, :HEADER_BYTES]).view(HEADER).reshape(-1)
    most = int(headers["written"].max(initial=0))
    # In slots of the caller, plus the headers and rounding that alloc_profiler_buffer does not add for many tracks.
    spare = max(0, 2 * (tracks - _EXTRA_TRACKS[1])) * HEADER_BYTES // SLOT_BYTES
    remedy = f"use max_num_profile_slots={(most or 16) * tracks + spare} to keep all of them"
    print(f"triton_dist: {lost} records were lost because the buffer is too small; {remedy}", file=sys.stderr)
