"""The Triton and Gluon kernels of the fifth set."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

import warplens.triton as wlt

# Triton 3.8 renamed it; newer versions raise an error for the old name.
_copy = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@triton.jit
def rms_norm(x, w, y, rows, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Rows over their root mean square, weighted; a program takes every so many of them."""
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = row.to(tl.int64) * COLUMNS
        squares = tl.zeros((BLOCK,), tl.float32)
        for first in tl.range(0, COLUMNS, BLOCK, num_stages=STAGES):
            with wlt.region("one"):
                values = tl.load(x + start + first + tl.arange(0, BLOCK))
                squares += values * values
        with wlt.region("two"):
            scale = tl.rsqrt(tl.sum(squares, axis=0) / COLUMNS + 1e-5)
        for first in tl.range(0, COLUMNS, BLOCK, num_stages=STAGES):
            with wlt.region("three"):
                at = first + tl.arange(0, BLOCK)
                tl.store(y + start + at, tl.load(x + start + at) * scale * tl.load(w + at))


@gluon.jit
def bring_tiles(x, ring, full, empty, count):
    stages: gl.constexpr = ring.type.shape[0]
    rows: gl.constexpr = ring.type.shape[1]
    for step in range(count):
        stage = step % stages
        with wlt.region("slot"):
            mbarrier.wait(empty.index(stage), ((step // stages) & 1) ^ 1)
        with wlt.region("bring"):
            mbarrier.expect(full.index(stage), x.block_type.nbytes)
            _copy(x, [(gl.program_id(0) * count + step) * rows, 0], full.index(stage), ring.index(stage))


@gluon.jit
def cube_tiles(y, ring, full, empty, count, BY_LOG: gl.constexpr, num_warps: gl.constexpr):
    stages: gl.constexpr = ring.type.shape[0]
    rows: gl.constexpr = ring.type.shape[1]
    columns: gl.constexpr = ring.type.shape[2]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [num_warps, 1], [1, 0])
    sums = gl.zeros((rows, columns), gl.float32, layout)
    for step in range(count):
        stage = step % stages
        with wlt.region("data"):
            mbarrier.wait(full.index(stage), (step // stages) & 1)
        with wlt.region("cube"):
            values = ring.index(stage).load(layout).to(gl.float32) + 1.0
            if BY_LOG:
                for power in gl.static_range(1, 4):
                    sums += gl.exp(gl.log(values) * power)
            else:
                sums += values * (1.0 + values * (1.0 + values))
        mbarrier.arrive(empty.index(stage), count=1)
    row = gl.arange(0, rows, gl.SliceLayout(1, layout))
    column = gl.arange(0, columns, gl.SliceLayout(0, layout))
    with wlt.region("out"):
        gl.store(y + (gl.program_id(0) * rows + row[:, None]) * columns + column[None, :], sums)


@gluon.jit
def cube_sums(x, y, count, STAGES: gl.constexpr, BY_LOG: gl.constexpr, num_warps: gl.constexpr):
    """Sums of x + x^2 + x^3 over tiles that one warp brings; the powers by logarithms or by products."""
    shape: gl.constexpr = x.block_type.shape
    ring = gl.allocate_shared_memory(x.dtype, [STAGES, shape[0], shape[1]], x.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (cube_tiles, (y, ring, full, empty, count, BY_LOG, num_warps)),
            (bring_tiles, (x, ring, full, empty, count)),
        ],
        [1],
        [24],
    )
