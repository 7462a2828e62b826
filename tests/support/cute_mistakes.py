"""Kernels with one mistake each, and what must be said about it."""

from __future__ import annotations

from cutlass import Int32, cute

import warplens.cute as wlc


@cute.kernel
def before(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    with wlc.region("load"):
        x[0] = x[1]
    wlc.kernel(prof)


@cute.kernel
def dynamic_name(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    with wlc.region(n):
        x[0] = x[1]


@cute.kernel
def empty_name(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    wlc.instant("")


@cute.kernel
def no_end(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    wlc.begin("load")
    x[0] = x[1]


@cute.kernel
def no_begin(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    wlc.begin("load")
    wlc.end("load")
    wlc.end("laod")


@cute.kernel
def no_async_end(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    wlc.async_begin("flight")


@cute.kernel
def in_a_branch(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    if n > 2:
        wlc.kernel(prof)
        x[0] = x[1]


@cute.kernel
def twice(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    wlc.kernel(prof)


@cute.kernel
def wrong_dtype(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(x)


@cute.kernel
def unknown_leader(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof, leader="lane1")


@cute.kernel
def warp_out_of_range(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof, warps=64)


@cute.kernel
def large_tag(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    wlc.async_end(wlc.async_begin("flight", 32))


@cute.kernel
def value_of_a_tensor(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    wlc.value("x", x)


@cute.kernel
def value_of_65_bits(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof)
    wlc.value("x", 1 << 64)


@cute.kernel
def after_the_end(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    with wlc.kernel(prof):
        x[0] = x[1]
    wlc.instant("late")


@cute.kernel
def unknown_full(x: cute.Tensor, n: Int32, prof: wlc.Buffer):
    wlc.kernel(prof, full="wrap")


MISTAKES = {
    "before": (before, r"cute_mistakes.py:\d+: a mark comes before wlc.kernel\(prof\); put it on the first line"),
    "dynamic_name": (dynamic_name, "name must be a string known at compile time, not a Int32"),
    "empty_name": (empty_name, "name must be a string known at compile time, not ''"),
    "no_end": (no_end, r"cute_mistakes.py:\d+: 'load' begins but never ends in kernel 'no_end'"),
    "no_begin": (no_begin, r"'laod' ends but never begins in kernel 'no_begin' \(did you mean 'load'"),
    "no_async_end": (no_async_end, "async 'flight' begins but never ends"),
    "in_a_branch": (in_a_branch, "must not be inside a loop or branch"),
    "twice": (twice, "already has a wlc.kernel"),
    "wrong_dtype": (wrong_dtype, "got a .*Tensor of Float32; it takes the kernel's parameter"),
    "unknown_leader": (unknown_leader, "leader='lane1'.*did you mean 'lane0'"),
    "warp_out_of_range": (warp_out_of_range, r"warps=64: name warps of a block, 0..63"),
    "large_tag": (large_tag, "tag 32 of 'flight': allowed are 0..31"),
    "value_of_a_tensor": (value_of_a_tensor, "value 'x' is a .*Tensor.*: give one number"),
    "value_of_65_bits": (value_of_65_bits, "value 'x' is 18446744073709551616: it does not fit in 64 bits"),
    "after_the_end": (after_the_end, "comes after the end of `with wlc.kernel"),
    "unknown_full": (unknown_full, "full='wrap': allowed are 'stop' and 'ring'"),
}
