"""Profile a vector add. Needs a GPU and torch. Run: python examples/cute/vector_add.py [out.warplens]"""

from __future__ import annotations

import sys

import cutlass
from cutlass import cute

import warplens as wl
import warplens.cute as wlc

THREADS, STEPS = 256, 8


@cute.kernel
def vector_add(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, marked: cutlass.Constexpr, prof: wlc.Buffer):
    wlc.kernel(prof, enabled=marked)
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    for step in cutlass.range(STEPS, unroll=1):
        i = (block * STEPS + step) * THREADS + thread
        with wlc.region("load"):
            a, b = x[i], y[i]
        with wlc.region("store"):
            out[i] = a + b


@cute.jit
def run(x: cute.Tensor, y: cute.Tensor, out: cute.Tensor, prof: wlc.Buffer, marked: cutlass.Constexpr = True):
    grid = cute.size(out) // (THREADS * STEPS)
    vector_add(x, y, out, marked, prof).launch(grid=(grid, 1, 1), block=(THREADS, 1, 1))


def main(path: str | None = None) -> None:
    import torch
    from cutlass.cute.runtime import from_dlpack

    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    x, y = (torch.randn(1 << 20, device="cuda") for _ in range(2))
    out = torch.empty_like(x)
    prof = wlc.buffer()
    arguments = (*(from_dlpack(t) for t in (x, y, out)), prof)
    compiled = cute.compile(run, *arguments)
    with wl.profile(path) as profile:
        compiled(*arguments)
    torch.testing.assert_close(out, x + y)
    for row in profile.trace.stats():
        print(f"{row.region:16} {row.count:10,} times, {row.p50_ns:10,.0f} ns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
