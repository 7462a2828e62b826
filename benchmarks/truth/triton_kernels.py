"""The Triton kernels of the truth set."""

from __future__ import annotations

import triton
import triton.language as tl

import warplens.triton as wlt


@triton.jit
def softmax_rows(x, y, rows_each, COLUMNS: tl.constexpr):
    """Softmax along rows, `rows_each` of them per program."""
    columns = tl.arange(0, COLUMNS)
    for i in range(rows_each):
        row = (tl.program_id(0) * rows_each + i).to(tl.int64) * COLUMNS
        with wlt.region("load"):
            values = tl.load(x + row + columns)
        with wlt.region("softmax"):
            shifted = tl.exp(values - tl.max(values, axis=0))
            shares = shifted / tl.sum(shifted, axis=0)
        with wlt.region("store"):
            tl.store(y + row + columns, shares)


@triton.jit
def lower_triangle(a, x, y, n, turns, ALTERNATE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """y = lower triangle of `a` times x. A program takes `turns` groups of rows, neighbours or dealt back and forth."""
    program = tl.program_id(0)
    programs = tl.num_programs(0)
    for turn in range(turns):
        if ALTERNATE:
            group = turn * programs + tl.where(turn % 2 == 0, program, programs - 1 - program)
        else:
            group = program * turns + turn
        rows = group * ROWS + tl.arange(0, ROWS)
        sums = tl.zeros((ROWS,), tl.float32)
        for start in range(0, (group + 1) * ROWS, COLUMNS):
            columns = start + tl.arange(0, COLUMNS)
            with wlt.region("load"):
                below = columns[None, :] <= rows[:, None]
                tile = tl.load(a + rows[:, None].to(tl.int64) * n + columns[None, :], mask=below, other=0.0)
                vector = tl.load(x + columns, mask=columns < n, other=0.0)
            with wlt.region("multiply"):
                sums += tl.sum(tile * vector[None, :], axis=1)
        with wlt.region("store"):
            tl.store(y + rows, sums)


@triton.jit
def scale_add(x, y, out, factor, BLOCK: tl.constexpr):
    """out = factor x + y."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        left = tl.load(x + at)
        right = tl.load(y + at)
    with wlt.region("store"):
        tl.store(out + at, left * factor + right)


@triton.jit
def matmul(a, b, c, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a b, row-major fp16."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    acc = tl.zeros((BM, BN), tl.float32)
    for start in range(0, K, BK):
        with wlt.region("load"):
            left = tl.load(a + rows[:, None] * K + (start + inner)[None, :])
            right = tl.load(b + (start + inner)[:, None] * N + columns[None, :])
        with wlt.region("dot"):
            acc = tl.dot(left, right, acc)
    with wlt.region("store"):
        tl.store(c + rows[:, None] * N + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def channel_scale(x, y, n, channel, PLANAR: tl.constexpr, CHANNELS: tl.constexpr, BLOCK: tl.constexpr):
    """Scale one channel of samples, which lie side by side (PLANAR) or between those of the other channels."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        values = tl.load(x + channel * n + at) if PLANAR else tl.load(x + at * CHANNELS + channel)
    with wlt.region("store"):
        tl.store(y + at, values * 2.0)


@triton.jit
def column_sums(x, y, tiles, AT_ONCE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Sums of columns over all programs: each adds to the result after every tile, or once (AT_ONCE)."""
    columns = tl.arange(0, COLUMNS)
    sums = tl.zeros((COLUMNS,), tl.float32)
    for tile in range(tiles):
        rows = (tl.program_id(0) * tiles + tile) * ROWS + tl.arange(0, ROWS)
        with wlt.region("load"):
            values = tl.load(x + rows[:, None].to(tl.int64) * COLUMNS + columns[None, :])
            part = tl.sum(values, axis=0)
        with wlt.region("add"):
            if AT_ONCE:
                sums += part
            else:
                tl.atomic_add(y + columns, part)
    if AT_ONCE:
        with wlt.region("add all"):
            tl.atomic_add(y + columns, sums)
