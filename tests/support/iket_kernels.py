"""A kernel with every mark of IKET; imports only where the DSL has IKET. tests/support/iket_program.py loads it."""

from __future__ import annotations

import cutlass

# The DSL reads the architecture that this sets when it is imported.
from tests.support import cute_gpu  # noqa: F401

# isort: split
from cutlass import Float32, Int8, Int32, cute
from cutlass.cute.experimental import iket

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
