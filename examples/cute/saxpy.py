"""Profile y = a x + y, with marks that need no buffer. Needs a GPU and torch. Run: python examples/cute/saxpy.py
[out.warplens]"""

from __future__ import annotations

import sys

import cutlass
from cutlass import Float32, cute

import warplens as wl
import warplens.cute as wlc

THREADS, STEPS = 256, 8


@cute.kernel
def saxpy(a: Float32, x: cute.Tensor, y: cute.Tensor):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    for step in cutlass.range(STEPS, unroll=1):
        i = (block * STEPS + step) * THREADS + thread
        with wlc.region("load"):
            u, v = x[i], y[i]
        with wlc.region("store"):
            y[i] = a * u + v


@cute.jit
def run(a: Float32, x: cute.Tensor, y: cute.Tensor):
    saxpy(a, x, y).launch(grid=(cute.size(y) // (THREADS * STEPS), 1, 1), block=(THREADS, 1, 1))


def main(path: str | None = None) -> None:
    import torch
    from cutlass.cute.runtime import from_dlpack

    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
    expected = 2 * x + y
    arguments = 2.0, from_dlpack(x), from_dlpack(y)
    compiled = cute.compile(run, *arguments)
    with wl.profile(path) as profile:
        compiled(*arguments)
    torch.testing.assert_close(y, expected)
    for row in profile.trace.stats():
        print(f"{row.region:16} {row.count:10,} times, {row.p50_ns:10,.0f} ns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
