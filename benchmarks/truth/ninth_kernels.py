"""The Triton kernels of the ninth set."""

from __future__ import annotations

import triton
import triton.language as tl

import warplens.triton as wlt


@triton.jit
def lora_shrink(x, a, y, depth, TOKENS: tl.constexpr, RANK: tl.constexpr, BLOCK: tl.constexpr):
    """Tokens times the first matrix of an adapter of low rank; the programs of a tile of tokens share the depth."""
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    ranks = tl.arange(0, RANK)
    part = depth // tl.num_programs(1)
    sums = tl.zeros((TOKENS, RANK), tl.float32)
    for start in tl.range(tl.program_id(1) * part, (tl.program_id(1) + 1) * part, BLOCK, num_stages=3):
        with wlt.region("shrink"):
            at = start + tl.arange(0, BLOCK)
            values = tl.load(x + tokens[:, None].to(tl.int64) * depth + at[None, :])
            weights = tl.load(a + ranks[None, :] * depth + at[:, None])
            sums = tl.dot(values, weights, sums)
    with wlt.region("add"):
        tl.atomic_add(y + tokens[:, None] * RANK + ranks[None, :], sums, sem="relaxed")


@triton.jit
def flame_cells(fuel, heat, substeps, out, count, each, DEALT: tl.constexpr, BLOCK: tl.constexpr):
    """The chemistry of a flame's cells; tiles of cells take as many small steps as the hottest of them needs."""
    for turn in range(each):
        tile = tl.program_id(0) * each + turn
        if DEALT:
            tile = turn * tl.num_programs(0) + tl.program_id(0)
        at = tile * BLOCK + tl.arange(0, BLOCK)
        with wlt.region("cells"):
            left, warmth = tl.load(fuel + at), tl.load(heat + at)
            steps = tl.load(substeps + tile)
        with wlt.region("react"):
            for _ in range(steps):
                burnt = 0.01 * left * tl.exp(-4.0 / warmth)
                left -= burnt
                warmth += burnt
        with wlt.region("keep"):
            tl.store(out + at, left)
            tl.store(out + count + at, warmth)


@triton.jit
def gram_matrix(x, gram, lock, rows, LOCKED: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Products of all pairs of columns, summed over rows; a program adds its part to the result at the end."""
    columns = tl.arange(0, COLUMNS)
    sums = tl.zeros((COLUMNS, COLUMNS), tl.float32)
    for start in range(tl.program_id(0) * rows, (tl.program_id(0) + 1) * rows, ROWS):
        with wlt.region("multiply"):
            row = start + tl.arange(0, ROWS)
            upright = tl.load(x + row[:, None] * COLUMNS + columns[None, :])
            sums = tl.dot(tl.trans(upright), upright, sums)
    at = gram + columns[:, None] * COLUMNS + columns[None, :]
    if LOCKED:
        with wlt.region("lock"):
            while tl.atomic_cas(lock, 0, 1) == 1:
                pass
        with wlt.region("update"):
            tl.store(at, tl.load(at, cache_modifier=".cg") + sums)
            tl.debug_barrier()
            tl.atomic_xchg(lock, 0)
    else:
        with wlt.region("update"):
            tl.atomic_add(at, sums, sem="relaxed")


@triton.jit
def embedding_gradient(ids, slopes, table, padding, APART: tl.constexpr, TOKENS: tl.constexpr, WIDTH: tl.constexpr):
    """The gradient of an embedding: rows of slopes are added to the rows of their tokens, most of which are padding."""
    tokens = tl.program_id(0) * TOKENS + tl.arange(0, TOKENS)
    columns = tl.arange(0, WIDTH)
    with wlt.region("load"):
        token = tl.load(ids + tokens)
        slope = tl.load(slopes + tokens[:, None] * WIDTH + columns[None, :])
    with wlt.region("scatter"):
        at = table + token[:, None] * WIDTH + columns[None, :]
        if APART:
            padded = (token == padding)[:, None]
            most = tl.sum(tl.where(padded, slope, 0.0), axis=0)
            tl.atomic_add(table + padding * WIDTH + columns, most, sem="relaxed")
            tl.atomic_add(at, slope, mask=token[:, None] != padding, sem="relaxed")
        else:
            tl.atomic_add(at, slope, sem="relaxed")


@triton.jit
def resize_images(images, out, SIDE: tl.constexpr, SMALL: tl.constexpr, BLOCK: tl.constexpr):
    """Square images to two thirds of their side, bilinear; the second axis of the grid counts the images."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    image = images + tl.program_id(1) * SIDE * SIDE
    with wlt.region("pixels"):
        y, x = (at // SMALL) * 1.5 + 0.25, (at % SMALL) * 1.5 + 0.25
        top, left = y.to(tl.int32), x.to(tl.int32)
        down, right = y - top, x - left
        first = image + top * SIDE + left
        upper = tl.load(first) * (1 - right) + tl.load(first + 1) * right
        lower = tl.load(first + SIDE) * (1 - right) + tl.load(first + SIDE + 1) * right
    with wlt.region("write"):
        tl.store(out + tl.program_id(1) * SMALL * SMALL + at, upper * (1 - down) + lower * down)


@triton.jit
def swiglu(gates, values, out, COLUMNS: tl.constexpr):
    """SwiGLU, a row per program: bound by memory, nothing to repair."""
    at = tl.program_id(0).to(tl.int64) * COLUMNS + tl.arange(0, COLUMNS)
    with wlt.region("load"):
        gate, value = tl.load(gates + at).to(tl.float32), tl.load(values + at).to(tl.float32)
    with wlt.region("store"):
        tl.store(out + at, (gate * tl.sigmoid(gate) * value).to(tl.float16))
