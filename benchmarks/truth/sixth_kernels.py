"""The Triton kernels of the sixth set."""

from __future__ import annotations

import triton
import triton.language as tl

import warplens.triton as wlt


@triton.jit
def smooth_tiles(x, y, tiles, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """A nonlinear filter that is applied to each tile many times; a program takes `tiles` of them."""
    for tile in range(tl.program_id(0) * tiles, (tl.program_id(0) + 1) * tiles):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        with wlt.region("get"):
            values = tl.load(x + at)
        with wlt.region("filter"):
            for _ in range(STEPS):
                values = values * 0.5 + tl.sqrt(values * values + 1.0) * 0.25
        with wlt.region("put"):
            tl.store(y + at, values)


@triton.jit
def wide_softmax(x, y, rows, COLUMNS: tl.constexpr):
    """Softmax of rows that a program holds in its registers."""
    columns = tl.arange(0, COLUMNS)
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        with wlt.region("a"):
            values = tl.load(x + row * COLUMNS + columns)
        with wlt.region("b"):
            powers = tl.exp(values - tl.max(values, axis=0))
            result = powers / tl.sum(powers, axis=0) + 0.001 * values
        with wlt.region("c"):
            tl.store(y + row * COLUMNS + columns, result)


@triton.jit
def scale_shift(x, scale, shift, y, COLUMNS: tl.constexpr):
    """Each row times one vector plus another; all rows read the same two."""
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0).to(tl.int64) * COLUMNS + columns
    with wlt.region("in"):
        values, factor, offset = tl.load(x + at), tl.load(scale + columns), tl.load(shift + columns)
    with wlt.region("out"):
        tl.store(y + at, values * factor + offset)
