"""CuTe kernels for automatic marks: two without a mark, of which one is a method, and one that is marked by hand."""

from __future__ import annotations

from typing import Any

# The DSL reads the architecture that this sets when it is imported.
from tests.support import cute_gpu  # noqa: F401

# isort: split
from cutlass import Float32, Int32, Int64, cute
from cutlass.cute.runtime import make_ptr

import warplens.cute as wlc

N, THREADS = 256, 64


def pointer(address: int) -> Any:
    return make_ptr(Float32, address, cute.AddressSpace.gmem, assumed_align=16)


@cute.kernel
def scale(x: cute.Pointer, y: cute.Pointer, n: Int32):
    source, target = cute.make_tensor(x, cute.make_layout(N)), cute.make_tensor(y, cute.make_layout(N))
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    if i < n:
        v = source[i]  # the load
        target[i] = v * 2.0  # the store


class Shift:
    """`scale`, then a kernel that is a method."""

    def __init__(self, by: float) -> None:
        self.by = by

    @cute.kernel
    def kernel(self, y: cute.Pointer, n: Int32):
        target = cute.make_tensor(y, cute.make_layout(N))
        thread, _, _ = cute.arch.thread_idx()
        block, _, _ = cute.arch.block_idx()
        i = block * THREADS + thread
        if i < n:
            target[i] = target[i] + self.by

    @cute.jit
    def __call__(self, x: cute.Pointer, y: cute.Pointer, n: Int32):
        blocks = (n + THREADS - 1) // THREADS
        scale(x, y, n).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1])
        self.kernel(y, n).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1])


@cute.jit
def by_hand(y: cute.Pointer):
    target = cute.make_tensor(y, cute.make_layout(N))
    thread, _, _ = cute.arch.thread_idx()
    with wlc.region("by hand"):
        target[thread] = Float32(7.0)


@cute.kernel
def marked(y: cute.Pointer, prof: Int64):
    wlc.kernel(prof)
    by_hand(y)


@cute.jit
def both(x: cute.Pointer, y: cute.Pointer, n: Int32, prof: Int64):
    scale(x, y, n).launch(grid=[4, 1, 1], block=[THREADS, 1, 1])
    marked(y, prof).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def marked_by_buffer(y: cute.Pointer, prof: wlc.Buffer):
    wlc.kernel(prof)
    by_hand(y)


@cute.jit
def run_marked(y: cute.Pointer, prof: wlc.Buffer):
    marked_by_buffer(y, prof).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])
