"""`from warplens.compat.triton_dist.tools.profiler import ...`: the same names under triton_dist's own path."""

from __future__ import annotations

from warplens.compat.triton_dist import (
    Profiler,
    ProfilerBuffer,
    alloc_profiler_buffer,
    export_to_perfetto_trace,
    get_export_trace_on,
    reset_profiler_buffer,
    set_export_trace_off,
    set_export_trace_on,
    tid,
    to_trace,
)

__all__ = [
    "Profiler",
    "ProfilerBuffer",
    "alloc_profiler_buffer",
    "export_to_perfetto_trace",
    "get_export_trace_on",
    "reset_profiler_buffer",
    "set_export_trace_off",
    "set_export_trace_on",
    "tid",
    "to_trace",
]
