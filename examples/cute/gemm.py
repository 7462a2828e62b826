"""A warp-specialised GEMM for Hopper: one warp loads with TMA, two warp groups multiply with wgmma.

C = A Bᵀ with A (M, K), B (N, K) in fp16, K innermost; sums in fp32. Needs a GPU, a Hopper (sm_90), and torch:

    python examples/cute/gemm.py gemm.warplens
"""

from __future__ import annotations

import sys

import cutlass
from cutlass import Float16, Float32, Int64, cute, pipeline, utils
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import hopper_helpers as hopper

import warplens as wl
import warplens.cute as wlc

M, N, K = 128, 256, 64
"""Size of a block's tile, and K elements per stage."""
STAGES = 4
GROUPS = 2
THREADS = 128 * (1 + GROUPS)


@cute.kernel
def gemm(
    load_a: cute.CopyAtom,
    a: cute.Tensor,
    load_b: cute.CopyAtom,
    b: cute.Tensor,
    c: cute.Tensor,
    mma: cute.TiledMma,
    layout_a: cute.ComposedLayout,
    layout_b: cute.ComposedLayout,
    storage: cutlass.Constexpr,
    marked: cutlass.Constexpr,
    prof: wlc.Buffer,
):
    wlc.kernel(prof, enabled=marked)
    thread, _, _ = cute.arch.thread_idx()
    tile_m, tile_n, _ = cute.arch.block_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    group = cute.arch.make_warp_uniform(thread // 128)

    shared = utils.SmemAllocator().allocate(storage)
    stage_bytes = cute.size_in_bytes(Float16, cute.slice_(layout_a, (None, None, 0)))
    stage_bytes += cute.size_in_bytes(Float16, cute.slice_(layout_b, (None, None, 0)))
    queue = pipeline.PipelineTmaAsync.create(
        barrier_storage=shared.barriers.data_ptr(),
        num_stages=STAGES,
        producer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread),
        consumer_group=pipeline.CooperativeGroup(pipeline.Agent.Thread, 4 * GROUPS),
        tx_count=stage_bytes,
        cta_layout_vmnk=cute.make_layout((1, 1, 1, 1)),
    )
    shared_a = shared.a.get_tensor(layout_a.outer, swizzle=layout_a.inner)
    shared_b = shared.b.get_tensor(layout_b.outer, swizzle=layout_b.inner)
    global_a = cute.local_tile(a, (M, K), (tile_m, None))
    global_b = cute.local_tile(b, (N, K), (tile_n, None))
    global_c = cute.local_tile(c, (M, N), (tile_m, tile_n))
    steps = cute.size(global_a, mode=[2])

    if group == 0:
        cute.arch.setmaxregister_decrease(40)
        if warp == 0:
            to_a, from_a = cpasync.tma_partition(
                load_a, 0, cute.make_layout(1), cute.group_modes(shared_a, 0, 2), cute.group_modes(global_a, 0, 2)
            )
            to_b, from_b = cpasync.tma_partition(
                load_b, 0, cute.make_layout(1), cute.group_modes(shared_b, 0, 2), cute.group_modes(global_b, 0, 2)
            )
            state = pipeline.make_pipeline_state(pipeline.PipelineUserType.Producer, STAGES)
            for _ in cutlass.range(steps, unroll=1):
                with wlc.region("wait empty"):
                    queue.producer_acquire(state)
                with wlc.region("load"):
                    barrier = queue.producer_get_barrier(state)
                    cute.copy(load_a, from_a[None, state.count], to_a[None, state.index], tma_bar_ptr=barrier)
                    cute.copy(load_b, from_b[None, state.count], to_b[None, state.index], tma_bar_ptr=barrier)
                    queue.producer_commit(state)
                state.advance()
            queue.producer_tail(state)
    else:
        cute.arch.setmaxregister_increase(232)
        mine = mma.get_slice(cute.make_layout(GROUPS, stride=128)(group - 1))
        part_a = mma.make_fragment_A(mine.partition_A(shared_a))
        part_b = mma.make_fragment_B(mine.partition_B(shared_b))
        sums = cute.make_rmem_tensor(mine.partition_C(global_c).shape, Float32)
        mma.set(warpgroup.Field.ACCUMULATE, False)
        ready = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        done = pipeline.make_pipeline_state(pipeline.PipelineUserType.Consumer, STAGES)
        for step in cutlass.range(steps, unroll=1):
            with wlc.region("wait full"):
                queue.consumer_wait(ready)
            with wlc.region("mma"):
                warpgroup.fence()
                for k in cutlass.range_constexpr(cute.size(part_a, mode=[2])):
                    at = (None, None, k, ready.index)
                    cute.gemm(mma, sums, part_a[at], part_b[at], sums)
                    mma.set(warpgroup.Field.ACCUMULATE, True)
                warpgroup.commit_group()
                # One product stays in flight; the previous one has released its stage.
                warpgroup.wait_group(1)
            if step > 0:
                queue.consumer_release(done)
                done.advance()
            ready.advance()
        warpgroup.wait_group(0)
        queue.consumer_release(done)
        with wlc.region("store"):
            half = cute.make_rmem_tensor(sums.shape, Float16)
            half.store(sums.load().to(Float16))
            threads = mma.get_slice(thread - 128)
            cute.autovec_copy(half, threads.partition_C(global_c))


@cute.jit
def run(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, prof: wlc.Buffer, stream, marked: cutlass.Constexpr = True):
    inner = cute.nvgpu.OperandMajorMode.K
    mma = hopper.make_trivial_tiled_mma(Float16, Float16, inner, inner, Float32, (GROUPS, 1, 1), (64, N))
    atom = warpgroup.make_smem_layout_atom(warpgroup.SmemLayoutAtomKind.K_SW128, Float16)
    layout_a = cute.tile_to_shape(atom, (M, K, STAGES), order=(0, 1, 2))
    layout_b = cute.tile_to_shape(atom, (N, K, STAGES), order=(0, 1, 2))
    tma = cpasync.CopyBulkTensorTileG2SOp()
    load_a, tensor_a = cpasync.make_tiled_tma_atom(tma, a, cute.slice_(layout_a, (None, None, 0)), (M, K))
    load_b, tensor_b = cpasync.make_tiled_tma_atom(tma, b, cute.slice_(layout_b, (None, None, 0)), (N, K))

    @cute.struct
    class Storage:
        barriers: cute.struct.MemRange[Int64, 2 * STAGES]
        a: cute.struct.Align[cute.struct.MemRange[Float16, cute.cosize(layout_a)], 1024]
        b: cute.struct.Align[cute.struct.MemRange[Float16, cute.cosize(layout_b)], 1024]

    grid = (cute.ceil_div(c.shape[0], M), cute.ceil_div(c.shape[1], N), 1)
    gemm(load_a, tensor_a, load_b, tensor_b, c, mma, layout_a, layout_b, Storage, marked, prof).launch(
        grid=grid, block=(THREADS, 1, 1), stream=stream
    )


def main(path: str, size: int = 4096) -> None:
    import torch
    from cuda.bindings.driver import CUstream
    from cutlass.cute.runtime import from_dlpack

    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    a, b = (torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(size, size, device="cuda", dtype=torch.float16)
    prof = wlc.buffer(grid=(size // M, size // N), block=THREADS)
    stream = CUstream(torch.cuda.current_stream().cuda_stream)
    arguments = (*(from_dlpack(x, assumed_align=16) for x in (a, b, c)), prof, stream)
    compiled = cute.compile(run, *arguments)
    with wl.profile(path) as profile:
        compiled(*arguments)
    torch.testing.assert_close(c, a @ b.T, rtol=1e-2, atol=1e-1)
    print(profile.trace.stats())


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "gemm.warplens")
