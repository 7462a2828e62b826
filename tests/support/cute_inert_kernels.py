"""CuTe kernels with marks and without `wlc.kernel`, so that warplens has to weave them."""

from __future__ import annotations

from typing import Any

# The DSL reads the architecture that this sets when it is imported.
from tests.support import cute_gpu  # noqa: F401

# isort: split
import cutlass
from cutlass import Float16, Float32, Float64, Int8, Int32, Int64, Uint8, Uint32, Uint64, cute

import warplens.cute as wlc

N, THREADS, STEPS = 256, 64, 5


def array(pointer: Any) -> Any:
    return cute.make_tensor(pointer, cute.make_layout(N))


@cute.jit
def tripled(v: Float32) -> Float32:
    with wlc.region("helper"):
        result = v * 3.0
    return result  # noqa: RET504  (assigned inside `with`, used after it)


@cute.kernel
def everything(y: cute.Pointer, steps: Int32):
    """Loops, branches, a nested function, tokens that cross a loop, variables that cross `with`."""
    target = array(y)
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    total = Float32(0)
    token = wlc.async_begin("flight", 31)
    for k in cutlass.range(steps, unroll=1):
        with wlc.region("load"):
            v = target[i]
            total = total + v * 2.0
        if k % 2 == 0:
            with wlc.region("even"):
                total = total + tripled(v)
        wlc.async_end(token)
        token = wlc.async_begin("flight", k)
        wlc.value("k", k)
    wlc.async_end(token)
    wlc.anchor()
    wlc.value("total", total)
    wlc.instant("before")
    cute.arch.sync_threads()
    wlc.begin("store")
    target[i] = total
    wlc.end("store")


@cute.kernel
def numbers(y: cute.Pointer, n: Int32):
    wlc.value("negative", -n)
    wlc.value("unsigned", Uint32(-n))
    wlc.value("byte", Int8(-n))
    wlc.value("unsigned byte", Uint8(-n))
    wlc.value("wide", Int64(-n) * 1_000_000_000)
    wlc.value("widest", Uint64(n) << 62)
    wlc.value("condition", n > 2)
    wlc.value("half", Float16(n) / Float16(2))
    wlc.value("single", Float32(n) / Float32(4))
    wlc.value("double", Float64(n) / Float64(8))
    wlc.value("constant", -7)
    wlc.value("large", 1 << 63)
    wlc.value("fraction", 0.25)
    array(y)[0] = Float32(n)


@cute.kernel
def handed_over(y: cute.Pointer, steps: Int32):
    """Warp 0 fills a cell, warp 1 reads it: mbarriers in both directions, and a region that crosses the warps."""
    target = array(y)
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    shared = cutlass.utils.SmemAllocator()
    full = shared.allocate_array(Int64, 1)
    empty = shared.allocate_array(Int64, 1)
    if thread == 0:
        cute.arch.mbarrier_init(full, 32)
        cute.arch.mbarrier_init(empty, 32)
    cute.arch.sync_threads()
    for k in cutlass.range(steps, unroll=1):
        if warp == 0:
            with wlc.wait("empty", empty, (k + 1) & 1):
                cute.arch.mbarrier_wait(empty, (k + 1) & 1)
            wlc.start_event("tile", k)
            target[thread] = Float32(k)
            wlc.arrive("filled", full)
            cute.arch.mbarrier_arrive(full)
        else:
            with wlc.wait("full", full, k & 1):
                cute.arch.mbarrier_wait(full, k & 1)
            target[thread] = target[thread - 32] + target[thread]
            wlc.end_event("tile", k)
            wlc.arrive("used", empty)
            cute.arch.mbarrier_arrive(empty)


class Scale:
    """A kernel that is a method, marked or not."""

    def __init__(self, marked: bool) -> None:
        self.marked = marked

    @cute.kernel
    def kernel(self, y: cute.Pointer, n: Int32):
        target = array(y)
        thread, _, _ = cute.arch.thread_idx()
        if cutlass.const_expr(self.marked):
            wlc.begin("scale")
        v = target[thread] * 2.0
        if cutlass.const_expr(self.marked):
            wlc.end("scale")
            wlc.value("n", 7)
        target[thread] = v + 1.0

    @cute.jit
    def __call__(self, y: cute.Pointer, n: Int32):
        self.kernel(y, n).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def beside_a_recording(y: cute.Pointer, n: Int32):
    with wlc.region("woven"):
        array(y)[n] = Float32(1)


@cute.kernel
def with_a_buffer(y: cute.Pointer, prof: wlc.Buffer):
    wlc.kernel(prof)
    with wlc.region("direct"):
        array(y)[0] = Float32(2)


@cute.jit
def run_both_ways(y: cute.Pointer, n: Int32, prof: wlc.Buffer):
    beside_a_recording(y, n).launch(grid=[1, 1, 1], block=[32, 1, 1])
    with_a_buffer(y, prof).launch(grid=[1, 1, 1], block=[32, 1, 1])


def runner(kernel: Any, blocks: int = 1) -> Any:
    @cute.jit
    def run(y: cute.Pointer, n: Int32):
        kernel(y, n).launch(grid=[blocks, 1, 1], block=[THREADS, 1, 1])

    return run
