"""A warp-specialised Hopper matmul in Gluon: one warp loads by TMA, a warpgroup multiplies; both have marks.

`wlt.wait` and `wlt.arrive` record the barriers too, so the trace knows who waited for whom (`trace.edges`).

Needs a GPU, a Hopper (sm_90), and torch. Run: python examples/triton/gluon_matmul.py [out.warplens]
"""

from __future__ import annotations

import sys

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

import warplens as wl
import warplens.triton as wlt

# Triton 3.8 renamed both; newer versions raise an error for the old names.
_copy = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_write = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def load_tiles(a, b, tiles_a, tiles_b, ready, empty, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    stages: gl.constexpr = tiles_a.type.shape[0]
    row = gl.program_id(0) * BM
    column = gl.program_id(1) * BN
    for step in range(gl.cdiv(K, BK)):
        stage = step % stages
        phase = (step // stages) & 1
        with wlt.wait("wait for room"):
            mbarrier.wait(empty.index(stage), phase ^ 1)
        with wlt.region("issue copies"):
            barrier = ready.index(stage)
            wlt.arrive("issue copies", copy=True)
            mbarrier.expect(barrier, a.block_type.nbytes + b.block_type.nbytes)
            _copy(a, [row, step * BK], barrier, tiles_a.index(stage))
            _copy(b, [step * BK, column], barrier, tiles_b.index(stage))


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
        with wlt.wait("wait for tile"):
            mbarrier.wait(ready.index(stage), phase)
        with wlt.region("wgmma"):
            acc = warpgroup_mma(tiles_a.index(stage), tiles_b.index(stage), acc, is_async=True)
            acc = warpgroup_mma_wait(0, deps=[acc])
        wlt.arrive("tile is free")
        mbarrier.arrive(empty.index(stage), count=1)
    with wlt.region("store"):
        tile = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
        tile.store(acc.to(c.dtype))
        fence_async_shared()
        _write(c, [gl.program_id(0) * BM, gl.program_id(1) * BN], tile)
        tma.store_wait(0)


@gluon.jit
def specialised_matmul(
    a, b, c, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr, num_warps: gl.constexpr
):
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
            (load_tiles, (a, b, tiles_a, tiles_b, ready, empty, K, BM, BN, BK)),
        ],
        [1],
        [24],
    )


def run(a, b, c, tile=(128, 128, 64), stages=3):
    """Compute c = a @ b for row-major fp16 tensors whose sizes are multiples of the tile."""
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    def describe(tensor, shape):
        layout = gl.NVMMASharedLayout.get_default_for(list(shape), gl.float16)
        return TensorDescriptor.from_tensor(tensor, list(shape), layout)

    m, n, k = tile
    arguments = describe(a, (m, k)), describe(b, (k, n)), describe(c, (m, n))
    grid = (a.shape[0] // m, b.shape[1] // n)
    return specialised_matmul[grid](*arguments, a.shape[1], m, n, k, stages, num_warps=8)


def main(path: str | None = None) -> None:
    import torch

    if not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0):
        sys.exit("this example needs a GPU of the Hopper generation (sm_90)")
    a, b = (torch.randn(2048, 2048, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty_like(a)
    with wl.profile(path) as profile:
        run(a, b, c)
    torch.testing.assert_close(c, a @ b, rtol=1e-2, atol=1e-1)
    for row in profile.trace.stats():
        print(f"{row.region:16} {row.count:10,} times, {row.p50_ns:10,.0f} ns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
