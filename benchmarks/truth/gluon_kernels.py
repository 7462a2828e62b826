"""The Gluon kernels of the truth set."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

import warplens.triton as wlt

# Triton 3.8 renamed both; newer versions raise an error for the old names.
_copy = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_write = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def row_sums(x, y, tiles, ALONG_ROWS: gl.constexpr, ROWS: gl.constexpr, COLUMNS: gl.constexpr):
    """Sums of rows, in tiles. The lanes of a warp are spread along the rows or, against the memory, across them."""
    if ALONG_ROWS:
        layout: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    else:
        layout: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
    rows = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    columns = gl.arange(0, COLUMNS, gl.SliceLayout(0, layout))
    sums = gl.zeros((ROWS,), gl.float32, gl.SliceLayout(1, layout))
    for tile in range(tiles):
        with wlt.region("load"):
            at = rows[:, None].to(gl.int64) * (tiles * COLUMNS) + tile * COLUMNS + columns[None, :]
            values = gl.load(x + at)
        with wlt.region("add"):
            sums += gl.sum(values, axis=1)
    with wlt.region("store"):
        gl.store(y + rows, sums)


@gluon.jit
def load_tiles(
    a, b, tiles_a, tiles_b, ready, empty, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, WAITS: gl.constexpr
):
    stages: gl.constexpr = tiles_a.type.shape[0]
    row = gl.program_id(0) * BM
    column = gl.program_id(1) * BN
    for step in range(gl.cdiv(K, BK)):
        stage = step % stages
        phase = (step // stages) & 1
        with wlt.region("wait for room"):
            mbarrier.wait(empty.index(stage), phase ^ 1)
        with wlt.region("copy"):
            barrier = ready.index(stage)
            mbarrier.expect(barrier, a.block_type.nbytes + b.block_type.nbytes)
            _copy(a, [row, step * BK], barrier, tiles_a.index(stage))
            _copy(b, [step * BK, column], barrier, tiles_b.index(stage))
            if WAITS:
                mbarrier.wait(barrier, phase)


@gluon.jit
def multiply(
    c, tiles_a, tiles_b, ready, empty, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, num_warps: gl.constexpr
):
    stages: gl.constexpr = tiles_a.type.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BN, 16]
    )
    acc = gl.zeros((BM, BN), gl.float32, layout)
    for step in range(gl.cdiv(K, BK)):
        stage = step % stages
        phase = (step // stages) & 1
        with wlt.region("wait for tile"):
            mbarrier.wait(ready.index(stage), phase)
        with wlt.region("wgmma"):
            acc = warpgroup_mma(tiles_a.index(stage), tiles_b.index(stage), acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(stage), count=1)
    with wlt.region("store"):
        tile = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
        tile.store(acc.to(c.dtype))
        fence_async_shared()
        _write(c, [gl.program_id(0) * BM, gl.program_id(1) * BN], tile)
        tma.store_wait(0)


@gluon.jit
def specialised_matmul(
    a,
    b,
    c,
    K,
    BM: gl.constexpr,
    BN: gl.constexpr,
    BK: gl.constexpr,
    STAGES: gl.constexpr,
    WAITS: gl.constexpr,
    num_warps: gl.constexpr,
):
    """c = a b; with WAITS, the warp that loads waits for each copy before it issues the next."""
    tiles_a = gl.allocate_shared_memory(a.dtype, [STAGES, BM, BK], a.layout)
    tiles_b = gl.allocate_shared_memory(b.dtype, [STAGES, BK, BN], b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (multiply, (c, tiles_a, tiles_b, ready, empty, K, BM, BN, BK, num_warps)),
            (load_tiles, (a, b, tiles_a, tiles_b, ready, empty, K, BM, BN, BK, WAITS)),
        ],
        [1],
        [24],
    )
