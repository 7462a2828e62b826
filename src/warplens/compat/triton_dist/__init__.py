"""triton_dist's intra-kernel profiler on warplens records: `from warplens.compat.triton_dist import Profiler`.

The device side is imported on first use, so that traces can be exported without Triton.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from warplens.compat.triton_dist.buffer import (
    ProfilerBuffer,
    alloc_profiler_buffer,
    export_to_perfetto_trace,
    get_export_trace_on,
    reset_profiler_buffer,
    set_export_trace_off,
    set_export_trace_on,
    to_trace,
)

if TYPE_CHECKING:
    from warplens.compat.triton_dist.language import Profiler, tid

__all__ = [
    "Profiler", "ProfilerBuffer", "alloc_profiler_buffer", "export_to_perfetto_trace", "get_export_trace_on",
    "reset_profiler_buffer", "set_export_trace_off", "set_export_trace_on", "tid", "to_trace",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in ("Profiler", "tid"):
        from warplens.frontends.triton.requirement import require_triton

        require_triton()
        from warplens.compat.triton_dist import language

        return getattr(language, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
