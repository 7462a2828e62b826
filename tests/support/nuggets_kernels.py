"""Kernels in the style of transformer_nuggets: variables that cross regions, and each way of choosing threads."""

from __future__ import annotations

# The DSL reads the architecture that this sets when it is imported.
from tests.support import cute_gpu  # noqa: F401

# isort: split
import cutlass
import numpy as np
from cutlass import Int32, cute

from warplens.compat.nuggets import (
    elected_start,
    elected_stop,
    lane0_warp0_start,
    lane0_warp0_stop,
    profile_region,
    profile_start,
    profile_stop,
    read_globaltimer,
    warp_start,
    warp_stop,
)


@cute.jit
def _here():
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    return block, thread, block * 96 + thread


@cute.kernel
def reads_outer(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    block, _, i = _here()
    val = out[i]
    with profile_region(prof, n, Int32(0), block):
        out[i] = val + 1.0


@cute.kernel
def assigns_inside(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    block, _, i = _here()
    val = out[i]
    with profile_region(prof, n, 0, block):
        val = val * 2.0
        fresh = val + 1.0
    out[i] = val + fresh


@cute.kernel
def loops_and_branches_inside(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    block, _, i = _here()
    val = out[i]
    with profile_region(prof, n, 0, block):
        for k in cutlass.range(5):
            if k % 2 == 0:  # noqa: SIM108
                val = val + 1.0
            else:
                val = val + 10.0
        if i < 100:
            val = val + 1000.0
    out[i] = val


@cute.kernel
def inside_a_loop(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    block, _, i = _here()
    val = out[i]
    for k in cutlass.range(n - n + 3, unroll=1):
        with profile_region(prof, n, 1, block):
            val = val + k
    out[i] = val


@cute.kernel
def nested(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    block, _, i = _here()
    val = out[i]
    with profile_region(prof, n, 0, block):
        val = val + 1.0
        with profile_region(prof, n, 1, block):
            val = val * 2.0
            for _ in cutlass.range(2):
                with profile_region(prof, n, 2, block):
                    val = val + 3.0
        out[i] = val


SCOPES = {
    "reads_outer": (reads_outer, lambda x: x + 1, {"a": 2}),
    "assigns_inside": (assigns_inside, lambda x: 4 * x + 1, {"a": 2}),
    "loops_and_branches_inside": (
        loops_and_branches_inside, lambda x: x + 23 + 1000 * (np.arange(192) < 100), {"a": 2}
    ),
    "inside_a_loop": (inside_a_loop, lambda x: x + 3, {"b": 6}),
    "nested": (nested, lambda x: (x + 1) * 2 + 6, {"a": 2, "b": 2, "c": 4}),
}  # fmt: skip


@cute.kernel
def first_thread(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    _, _, i = _here()
    eid = lane0_warp0_start(prof, n)
    out[i] = out[i] + 1.0
    lane0_warp0_stop(prof, eid, Int32(1), i, n)


@cute.kernel
def one_warp(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    _, _, i = _here()
    eid = warp_start(prof, n, target_warp=Int32(2))
    out[i] = out[i] + 1.0
    warp_stop(prof, eid, 1, i, n, target_warp=Int32(2))


@cute.kernel
def each_warp(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    _, thread, i = _here()
    if thread % 32 > 3:
        eid = elected_start(prof, n)
        out[i] = out[i] + 1.0
        elected_stop(prof, eid, 1, i, n)


@cute.kernel
def each_thread(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    _, _, i = _here()
    eid = profile_start(prof, n)
    out[i] = out[i] + 1.0
    profile_stop(prof, eid, 1, i, n)


@cute.kernel
def region_of_a_warp(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    _, _, i = _here()
    with profile_region(prof, n, 1, i, target_warp=1):
        out[i] = out[i] + 1.0


@cute.kernel
def timed(out: cute.Tensor, prof: cute.Tensor, n: Int32):
    """What the global timer says of a loop, and a region right around both readings."""
    block, _, i = _here()
    with profile_region(prof, n, 1, block):
        start = read_globaltimer()
        total = out[i]
        for _ in cutlass.range(64, unroll=1):
            total = total * 0.5 + out[i]
        out[i] = total
        out[i] = (read_globaltimer() - start).to(cutlass.Float32)


KERNELS = {
    "lane0_warp0": (first_thread, [0, 96]),
    "warp": (one_warp, [64, 160]),
    "elected": (each_warp, [base + 32 * warp + 4 for base in (0, 96) for warp in range(3)]),
    "profile": (each_thread, list(range(192))),
    "profile_region": (region_of_a_warp, [32, 128]),
}
"""The kernel and the tids (global thread numbers) that record."""
