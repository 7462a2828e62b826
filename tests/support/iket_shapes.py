"""Kernels in the shapes in which programs use IKET: nested and crossing ranges, ranges of single warps, payloads of
every type, marks in loops and in functions, long names, ranges left open."""

from __future__ import annotations

import cutlass
from cutlass import (
    BFloat16,
    Float16,
    Float32,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    Uint8,
    Uint16,
    Uint32,
    Uint64,
    cute,
)

from warplens.compat import iket

N, THREADS = 128, 64
LONG = "the loads of the first operand of the "
"""Names that are the same in their first 32 characters, where IKET cuts them."""


@cute.jit
def element(y: cute.Pointer):
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    return cute.make_tensor(y, cute.make_layout(N)), block * THREADS + thread


@cute.kernel
def nested(y: cute.Pointer, n: Int32):
    target, i = element(y)
    iket.range_push("outer")
    crossing = iket.range_start("crossing")
    iket.range_push("inner", n)
    target[i] = target[i] + 1.0
    iket.range_push("innermost")
    target[i] = target[i] * 2.0
    iket.range_pop()
    iket.range_pop()
    target[i] = target[i] + 3.0
    iket.range_pop()
    target[i] = target[i] + 4.0
    iket.range_end(crossing)


@cute.kernel
def roles(y: cute.Pointer, n: Int32):
    """Each warp has ranges of its own, and warp 0 one around code that all warps run."""
    target, i = element(y)
    warp = cute.arch.make_warp_uniform(cute.arch.warp_idx())
    if warp == 0:
        iket.range_push("first warp")
    if warp == 0:
        iket.range_push("produce")
        for k in cutlass.range(n, unroll=1):
            iket.range_push("step", k)
            target[i] = target[i] + 1.0
            iket.range_pop()
        iket.range_pop()
    else:
        iket.range_push("consume")
        target[i] = target[i] * 2.0
        iket.mark("consumed", warp)
        iket.range_pop()
    cute.arch.barrier()
    if warp == 0:
        iket.range_pop()


@cute.kernel
def payloads(y: cute.Pointer, n: Int32):
    target, i = element(y)
    iket.mark("Int8", Int8(n - 8))
    iket.mark("Uint8", Uint8(n + 250))
    iket.mark("Int16", Int16(n - 300))
    iket.mark("Uint16", Uint16(n + 65000))
    iket.mark("Int32", n - 100000)
    iket.mark("Uint32", Uint32(0) - Uint32(n))
    iket.mark("Int64", Int64(n) - (1 << 40))
    iket.mark("Uint64", Uint64(n) + (1 << 40))
    iket.mark("Float32", Float32(n) * 0.25)
    iket.mark("Float64", Float64(n) * 0.125)
    iket.mark("int", -7)
    iket.mark("float", 0.5)
    iket.range_push("pushed", Int16(n - 6))
    token = iket.range_start("started", Float32(n))
    target[i] = target[i] + 1.0
    iket.range_end(token, Float32(n + 1))
    iket.range_pop()


@cute.kernel
def loops(y: cute.Pointer, n: Int32):
    target, i = element(y)
    token = iket.sentinel_token("between waits")
    for k in cutlass.range(n, unroll=1):
        if k > 0:
            iket.range_end(token)
        token = iket.range_start("between waits")
        for part in cutlass.range_constexpr(2):
            iket.range_push(f"part {part}", part)
            target[i] = target[i] + 1.0
            iket.range_pop()
        if k == 1:
            iket.mark("second")
    if n > 0:
        iket.range_end(token)
    left = n
    while left > 0:
        iket.mark("poll", left)
        left = left - 2
    target[i] = target[i] + Float32(left)


@cute.jit
def doubled(target: cute.Tensor, i: Int32, n: Int32):
    iket.range_push("doubled", n)
    target[i] = target[i] * 2.0
    iket.range_pop()


def with_range(name: str, payload=None):
    if payload is None:
        iket.range_push(name)
    else:
        iket.range_push(name, payload)


@cute.jit
def started(name: cutlass.Constexpr, n: Int32):
    return iket.range_start(name, n)


@cute.kernel
def functions(y: cute.Pointer, n: Int32):
    target, i = element(y)
    with_range("by a function")
    doubled(target, i, n)
    token = started("returned", n)
    for k in cutlass.range(2, unroll=1):
        doubled(target, i, k)
    iket.range_end(token, n + 1)
    iket.range_pop()


@cute.kernel
def long_names(y: cute.Pointer, n: Int32):
    target, i = element(y)
    iket.range_push(LONG + "first product")
    target[i] = target[i] + 1.0
    iket.range_pop()
    iket.range_push(LONG + "second product")
    target[i] = target[i] + 2.0
    iket.range_pop()
    iket.mark('ends: 100 % of µs\t"quoted"')


@cute.kernel
def left_open(y: cute.Pointer, n: Int32):
    target, i = element(y)
    iket.range_push("never popped")
    iket.range_start("never ended")
    target[i] = target[i] + 1.0
    iket.range_push("popped")
    target[i] = target[i] + 1.0
    iket.range_pop()


@cute.kernel
def more_payloads(y: cute.Pointer, n: Int32):
    """Types that IKET does not take."""
    target, i = element(y)
    iket.mark("Boolean", n > 1)
    iket.mark("Float16", Float16(n) * Float16(0.5))
    iket.mark("BFloat16", BFloat16(n) * BFloat16(2.0))
    iket.mark("bool", True)
    iket.mark("large", 1 << 40)
    iket.mark("unsigned", (1 << 63) + (1 << 11))
    target[i] = target[i] + 1.0


@cute.kernel
def many_events(y: cute.Pointer, n: Int32):
    """More names than IKET has numbers for."""
    target, i = element(y)
    for part in cutlass.range_constexpr(40):
        iket.range_push(f"part {part}")
        target[i] = target[i] + 1.0
    for _ in cutlass.range_constexpr(40):
        iket.range_pop()


class Scheduler:
    """Marks in methods, and a token that a while loop carries."""

    def __init__(self, name: str):
        self.name = name

    @cute.jit
    def work(self, target: cute.Tensor, i: Int32, left: Int32):
        iket.range_push(f"{self.name} work", left)
        target[i] = target[i] + Float32(left)
        iket.range_pop()

    @cute.kernel
    def kernel(self, y: cute.Pointer, n: Int32):
        target, i = element(y)
        tile, left = iket.sentinel_token(f"{self.name} tile"), n
        while left > 0:
            iket.range_end(tile)
            tile = iket.range_start(f"{self.name} tile")
            self.work(target, i, left)
            left = left - 1
        iket.range_end(tile)


methods = Scheduler("persistent").kernel


@cute.kernel
def imported_here(y: cute.Pointer, n: Int32):
    from warplens.compat import iket

    target, i = element(y)
    iket.range_push("inside")
    target[i] = target[i] + 1.0
    iket.range_pop()


def runner(kernel):
    @cute.jit
    def run(y: cute.Pointer, n: Int32):
        kernel(y, n).launch(grid=[N // THREADS, 1, 1], block=[THREADS, 1, 1])

    return run
