"""A Triton kernel whose regions stall for known reasons."""

from __future__ import annotations

import triton
import triton.language as tl

import warplens.triton as wlt


@triton.jit
def three(following, out, steps, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = (offsets * 977) & ((1 << 22) - 1)
    x = offsets * 0.001 + 0.5
    total = 0.0
    for _step in range(steps):
        with wlt.region("fma chain"):
            for _link in range(64):
                x = x * 1.0001 + 0.0001
                x = x * 0.9999 + 0.0001
                x = x * 1.0001 + 0.0001
                x = x * 0.9999 - 0.0001
        with wlt.region("pointer chase"):
            for _hop in range(4):
                at = tl.load(following + at)
        with wlt.region("reduction"):
            total += tl.sum(x + total, axis=0)
    tl.store(out + offsets, x + at + total)
