"""The kernels of triton_dist's intra-kernel profiler guide with only their import changed."""

from __future__ import annotations

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

from warplens.compat.triton_dist import Profiler, tid  # noqa: E402

NAMES = ["perfect", "non-perfect"]


@triton.jit
def copy_1d_tilewise_kernel(profiler_buf, src, dst, tiles, BLOCK: tl.constexpr, ENABLE: tl.constexpr):
    profiler = Profiler.create(
        profiler_buffer=profiler_buf, group_id=0, num_groups=1, is_leader=(tid(0) == 0), ENABLE_PROFILING=ENABLE
    )
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        task = tile % 2
        profiler = profiler.record(is_start=True, task_type=task)
        offsets = tile * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(src + offsets)
        tl.store(dst + offsets, x)
        profiler = profiler.record(is_start=False, task_type=task)


@triton.jit
def grouped(profiler_buf, GROUPS: tl.constexpr):
    for group in tl.static_range(GROUPS):
        profiler = Profiler.create(profiler_buf, group_id=group, num_groups=GROUPS, is_leader=tid(0) == 32 * group)
        profiler = profiler.record(is_start=True, task_type=group)
        profiler = profiler.record(is_start=False, task_type=group)
