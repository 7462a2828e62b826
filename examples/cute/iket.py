"""Every mark of NVIDIA's IKET, recorded by warplens. Run: python examples/cute/iket.py [out.warplens]

Needs a GPU. Written for IKET, with only its import changed (before: from cutlass.cute.experimental import iket).
"""

from __future__ import annotations

import sys

import cutlass
from cutlass import Float32, Int8, Int32, cute

from warplens.compat import iket

N, THREADS = 128, 64


@cute.kernel
def tiles(y: cute.Pointer, n: Int32):
    target = cute.make_tensor(y, cute.make_layout(N))
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    iket.mark("start")
    iket.mark("count", n)
    iket.mark("half", Float32(n) * 0.5)
    token = iket.sentinel_token("K_Tile")
    for k in cutlass.range(n, unroll=1):
        iket.range_end(token)
        token = iket.range_start("K_Tile")
        iket.range_push("step 100 %", k)
        target[i] = target[i] + 1.0
        if k % 2 == 0:
            iket.range_push("even")
            target[i] = target[i] * 2.0
            iket.range_pop()
        iket.range_pop()
    iket.range_end(token)
    tail = iket.range_start("tail", Int8(n - 8))
    target[i] = target[i] - 1.0
    iket.range_end(tail, Int8(n))


@cute.jit
def run(y: cute.Pointer, n: Int32):
    tiles(y, n).launch(grid=[N // THREADS, 1, 1], block=[THREADS, 1, 1])


def main(path: str | None = None, steps: int = 5) -> None:
    import torch
    from cutlass.cute.runtime import make_ptr

    import warplens as wl

    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    values = torch.arange(N, device="cuda", dtype=torch.float32)
    y = make_ptr(Float32, values.data_ptr(), cute.AddressSpace.gmem, assumed_align=16)
    with wl.profile(path) as profile:
        cute.compile(run, y, steps)(y, steps)
    for row in profile.trace.stats():
        print(f"{row.region:16} {row.count:10,} times, {row.p50_ns:10,.0f} ns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
