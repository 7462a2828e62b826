"""The Triton kernels of the eighth set."""

from __future__ import annotations

import triton
import triton.language as tl

import warplens.triton as wlt


@triton.jit
def narrow_grid(x, y, each, rows, COLUMNS: tl.constexpr):
    """The lengths of rows; a program takes `each` of them."""
    for row in range(tl.program_id(0) * each, min((tl.program_id(0) + 1) * each, rows)):
        with wlt.region("row"):
            values = tl.load(x + row.to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS))
        with wlt.region("length"):
            length = tl.sqrt(tl.sum(values * values, axis=0))
        with wlt.region("keep"):
            tl.store(y + row, length)
