"""A kernel profiled with the nuggets functions: `python -m warplens.compat.nuggets.example` (needs a GPU and torch)."""

from __future__ import annotations

import sys

import cutlass
from cutlass import Int32, cute

from warplens.compat.nuggets import lane0_warp0_start, lane0_warp0_stop, profile_region, profile_session

TAG_OUTER, TAG_INNER = 0, 1


@cute.kernel  # type: ignore[untyped-decorator]
def kernel(output: cute.Tensor, prof_buf: cute.Tensor, max_events: Int32, steps: Int32) -> None:
    bidx, _, _ = cute.arch.block_idx()
    tidx, _, _ = cute.arch.thread_idx()
    i = bidx * 128 + tidx
    eid = lane0_warp0_start(prof_buf, max_events)
    val = output[i]
    for _ in cutlass.range(steps):
        with profile_region(prof_buf, max_events, TAG_INNER, bidx):
            val = val + 1.0
            output[i] = val
    lane0_warp0_stop(prof_buf, eid, TAG_OUTER, bidx, max_events)


@cute.jit  # type: ignore[untyped-decorator]
def run(output: cute.Tensor, prof_buf: cute.Tensor, max_events: Int32, steps: Int32) -> None:
    kernel(output, prof_buf, max_events, steps).launch(grid=(4, 1, 1), block=(128, 1, 1))


def main(path: str = "profiler_example_trace.json") -> None:
    import torch
    from cutlass.cute.runtime import from_dlpack

    output = torch.zeros(512, device="cuda")
    with profile_session(256, ["outer", "inner"], trace_path=path) as (prof, _):
        run(from_dlpack(output), prof.to_cute(), Int32(prof.max_events), Int32(4))
    assert bool((output == 4).all())
    print(f"{path}: open it at https://ui.perfetto.dev")


if __name__ == "__main__":
    main(*sys.argv[1:2])
