"""The kernel of the SM Profiler's Triton quick start with only its import changed."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

from warplens.compat.sm_profiler.triton_ops import (  # noqa: E402
    profiler_event_end,
    profiler_event_instant,
    profiler_event_start,
    profiler_init,
)

EVT_COMPUTE = tl.constexpr(0)
EVT_MEMORY = tl.constexpr(1)
EVT_SYNC = tl.constexpr(2)


@triton.jit
def my_kernel(profiler_buffer_ptr, source, target, steps, BLOCK: tl.constexpr):
    ctx = profiler_init(profiler_buffer_ptr)
    block_idx = tl.program_id(0)
    group_idx = 0  # or compute based on your kernel structure
    offsets = block_idx * BLOCK + tl.arange(0, BLOCK)

    profiler_event_start(ctx, block_idx, group_idx, EVT_COMPUTE)
    for _ in range(steps):
        profiler_event_start(ctx, block_idx, group_idx, EVT_MEMORY)
        x = tl.load(source + offsets)
        profiler_event_end(ctx, block_idx, group_idx, EVT_MEMORY)
        tl.store(target + offsets, x * 2)
    profiler_event_end(ctx, block_idx, group_idx, EVT_COMPUTE)

    profiler_event_instant(ctx, block_idx, group_idx, EVT_SYNC)
