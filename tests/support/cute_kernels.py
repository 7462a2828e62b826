"""Kernels that the CuTe tests compile. Each takes its buffer last."""

from __future__ import annotations

from typing import Any

# The DSL reads the architecture that this sets when it is imported.
from tests.support import cute_gpu  # noqa: F401

# isort: split
import cutlass
from cutlass import Float16, Float32, Int8, Int32, Int64, Uint8, Uint32, cute
from cutlass.cute.runtime import make_fake_compact_tensor

import warplens.cute as wlc

N = 1024
BLOCKS, THREADS = 8, 128


def fake(count: int = N, dtype: Any = Float32) -> Any:
    return make_fake_compact_tensor(dtype, (count,))


@cute.jit
def tripled(v: Float32) -> Float32:
    with wlc.region("helper"):
        result = v * 3.0
    return result  # noqa: RET504  (assigned inside `with`, used after it)


@cute.kernel
def everything(x: cute.Tensor, y: cute.Tensor, n: Int32, steps: Int32, prof: wlc.Buffer):
    """Loops, branches, a nested function, tokens that cross a loop, variables that cross `with`."""
    wlc.kernel(prof)
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    total = Float32(0)
    token = wlc.async_begin("flight", 31)
    for k in cutlass.range(steps, unroll=1):
        with wlc.region("load"):
            v = x[i]
            if i < n:
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
    y[i] = total
    wlc.end("store")


@cute.jit
def run_everything(x: cute.Tensor, y: cute.Tensor, n: Int32, steps: Int32, prof: wlc.Buffer):
    everything(x, y, n, steps, prof).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def counted(y: cute.Tensor, how: cutlass.Constexpr, prof: wlc.Buffer):
    """`how` is what wlc.kernel is given; a few records of two kinds."""
    x, yy, _ = cute.arch.thread_idx()
    thread = yy * 32 + x
    wlc.kernel(prof, **(how(thread) if callable(how) else how))
    for k in cutlass.range(5, unroll=1):
        with wlc.region("step"):
            y[thread] = y[thread] + 1.0
        wlc.value("k", k)


@cute.jit
def run_counted(y: cute.Tensor, how: cutlass.Constexpr, prof: wlc.Buffer):
    counted(y, how, prof).launch(grid=[2, 3, 1], block=[32, 4, 1])


@cute.kernel
def marked_add(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, on: cutlass.Constexpr, prof: wlc.Buffer):
    wlc.kernel(prof, enabled=on)
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    with wlc.region("load"):
        a, b = x[i], y[i]
    with wlc.region("store"):
        z[i] = a + b
    wlc.value("i", i)


@cute.kernel
def plain_add(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, on: cutlass.Constexpr, prof: wlc.Buffer):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    i = block * THREADS + thread
    a, b = x[i], y[i]
    z[i] = a + b


@cute.jit
def run_add(x: cute.Tensor, y: cute.Tensor, z: cute.Tensor, marks: cutlass.Constexpr, prof: wlc.Buffer):
    if cutlass.const_expr(marks is None):
        plain_add(x, y, z, marks, prof).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])
    else:
        marked_add(x, y, z, marks, prof).launch(grid=[BLOCKS, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def values(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    """A number of each kind: 32 bits and fewer are widened by the mark itself."""
    wlc.kernel(prof)
    wlc.value("negative", -n)
    wlc.value("unsigned", Uint32(-n))
    wlc.value("byte", Int8(-n))
    wlc.value("unsigned byte", Uint8(-n))
    wlc.value("wide", Int64(-n) * 1_000_000_000)
    wlc.value("condition", n > 2)
    wlc.value("half", Float16(n) / Float16(2))
    wlc.value("constant", 7)
    wlc.value("fraction", 0.25)
    x[0] = Float32(n)


@cute.jit
def run_values(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    values(x, n, prof).launch(grid=[1, 1, 1], block=[32, 1, 1])


@cute.kernel
def roles(x: cute.Tensor, y: cute.Tensor, steps: Int32, prof: wlc.Buffer):
    """Warp 0 copies what the others then add up: each warp has the marks of its role alone."""
    wlc.kernel(prof)
    thread, _, _ = cute.arch.thread_idx()
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp == 0:
        for k in cutlass.range(steps, unroll=1):
            with wlc.region("produce"):
                y[k * 32 + thread] = x[k * 32 + thread]
    cute.arch.sync_threads()
    if warp > 0:
        total = Float32(0)
        token = wlc.async_begin("sum", warp)
        for k in cutlass.range(steps, unroll=1):
            with wlc.region("consume"):
                total = total + y[k * 32 + thread % 32]
        wlc.async_end(token)
        y[512 + thread] = total


@cute.jit
def run_roles(x: cute.Tensor, y: cute.Tensor, steps: Int32, prof: wlc.Buffer):
    roles(x, y, steps, prof).launch(grid=[1, 1, 1], block=[THREADS, 1, 1])


@cute.kernel
def chain(x: cute.Tensor, n: Int32, marked: cutlass.Constexpr, prof: wlc.Buffer):
    """Twelve steps in a loop, of which so many are marked."""
    wlc.kernel(prof, enabled=marked > 0)
    thread, _, _ = cute.arch.thread_idx()
    total = Float32(0)
    for k in cutlass.range(n, unroll=1):
        for step in cutlass.range_constexpr(12):
            if cutlass.const_expr(step < marked):
                with wlc.region(f"step {step}"):
                    total = total * 3.0 + x[thread + k * 32 + step * 1000]
            else:
                total = total * 3.0 + x[thread + k * 32 + step * 1000]
    x[thread] = total


@cute.jit
def run_chain(x: cute.Tensor, n: Int32, marked: cutlass.Constexpr, prof: wlc.Buffer):
    chain(x, n, marked, prof).launch(grid=[1, 1, 1], block=[32, 1, 1])


class Scale:
    """A kernel that is a method, takes an address, and ends its recording itself."""

    @cute.kernel
    def kernel(self, y: cute.Tensor, address: Int64):
        thread, _, _ = cute.arch.thread_idx()
        with wlc.kernel(address):
            with wlc.region("scale"):
                y[thread] = y[thread] * 2.0
        y[thread] = y[thread] + 1.0

    @cute.jit
    def __call__(self, y: cute.Tensor, address: Int64):
        self.kernel(y, address).launch(grid=[1, 1, 1], block=[64, 1, 1])


@cute.kernel
def handed_over(y: cute.Tensor, steps: Int32, prof: wlc.Buffer):
    """Warp 0 fills a cell, warp 1 reads it: mbarriers in both directions, and a region that crosses the warps."""
    wlc.kernel(prof)
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
            y[thread] = Float32(k)
            wlc.arrive("filled", full)
            cute.arch.mbarrier_arrive(full)
        else:
            with wlc.wait("full", full, k & 1):
                cute.arch.mbarrier_wait(full, k & 1)
            y[thread] = y[thread - 32] + y[thread]
            wlc.end_event("tile", k)
            wlc.arrive("used", empty)
            cute.arch.mbarrier_arrive(empty)


@cute.jit
def run_handed_over(y: cute.Tensor, steps: Int32, prof: wlc.Buffer):
    handed_over(y, steps, prof).launch(grid=[1, 1, 1], block=[64, 1, 1])
