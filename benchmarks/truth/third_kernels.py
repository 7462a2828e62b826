"""The Triton kernels of the third set."""

from __future__ import annotations

import triton
import triton.language as tl

import warplens.triton as wlt


@triton.jit
def norm_rows(x, y, COLUMNS: tl.constexpr):
    at = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    with wlt.region("one"):
        values = tl.load(x + at)
    with wlt.region("two"):
        centred = values - tl.sum(values, axis=0) / COLUMNS
        scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / COLUMNS + 1e-5)
    with wlt.region("three"):
        tl.store(y + at, centred * scale)


@triton.jit
def strided_rows(x, y, rows, columns, ACROSS: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    """Sums of columns. Memory holds the rows side by side (ACROSS), or the columns."""
    mine = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    each = rows // tl.num_programs(1)
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in range(tl.program_id(1) * each, (tl.program_id(1) + 1) * each, ROWS):
        row = start + tl.arange(0, ROWS)
        with wlt.region("take"):
            if ACROSS:
                values = tl.load(x + row[:, None] * columns + mine[None, :])
            else:
                values = tl.load(x + mine[None, :] * rows + row[:, None])
        with wlt.region("keep"):
            sums += values
    with wlt.region("end"):
        tl.atomic_add(y + mine, tl.sum(sums, axis=0))
