"""The Triton kernels of the tenth set."""

from __future__ import annotations

import triton
import triton.language as tl

import warplens.triton as wlt


@triton.jit
def page_scores(q, pool, table, out, pages, scale, PAGES: tl.constexpr, TOKENS: tl.constexpr, HEAD: tl.constexpr):
    """Scores of a query with the keys of its sequence, which lie in pages anywhere in a pool."""
    sequence = tl.program_id(0)
    lanes, token = tl.arange(0, HEAD), tl.arange(0, PAGES * TOKENS)
    query = tl.load(q + sequence * HEAD + lanes).to(tl.float32)
    for start in tl.range(0, pages, PAGES, num_stages=1):
        with wlt.region("pages"):
            page = tl.load(table + sequence * pages + start + token // TOKENS)
            row = page * TOKENS + token % TOKENS
            keys = tl.load(pool + row[:, None] * HEAD + lanes[None, :])
            scores = tl.sum(keys.to(tl.float32) * query[None, :], axis=1) * scale
            tl.store(out + (sequence * pages + start) * TOKENS + token, scores)


@triton.jit
def vertical_blur(image, weights, out, height, width, TAPS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """A blur along the columns of an image; the programs of a strip share its rows."""
    mine = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    each = height // tl.num_programs(1)
    for start in range(tl.program_id(1) * each, (tl.program_id(1) + 1) * each, ROWS):
        rows = start + tl.arange(0, ROWS)
        sums = tl.zeros((ROWS, COLUMNS), tl.float32)
        with wlt.region("blur"):
            for tap in tl.static_range(TAPS):
                row = tl.minimum(tl.maximum(rows + (tap - TAPS // 2), 0), height - 1)
                sums += tl.load(image + row[:, None] * width + mine[None, :]) * tl.load(weights + tap)
        with wlt.region("write"):
            tl.store(out + rows[:, None] * width + mine[None, :], sums)


@triton.jit
def vol_paths(seeds, payoffs, tiles, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """Monte Carlo: payoffs of Asian options under a volatility that moves; a program takes `tiles` tiles of paths."""
    for tile in range(tl.program_id(0) * tiles, (tl.program_id(0) + 1) * tiles):
        path = tile * BLOCK + tl.arange(0, BLOCK)
        with wlt.region("paths"):
            state = tl.load(seeds + path)
            price = tl.full((BLOCK,), 1.0, tl.float32)
            vol = tl.full((BLOCK,), 0.2, tl.float32)
            total = tl.zeros((BLOCK,), tl.float32)
            for _ in range(STEPS):
                state = state * 1664525 + 1013904223
                one = ((state >> 8) & 4095).to(tl.float32) * (1 / 4096) - 0.5
                two = ((state >> 20) & 4095).to(tl.float32) * (1 / 4096) - 0.5
                price += price * vol * one * 0.5
                vol = tl.maximum(vol + 0.05 * (0.2 - vol) + 0.1 * vol * two, 0.01)
                total += price
        with wlt.region("payoff"):
            tl.store(payoffs + path, tl.maximum(total / STEPS - 1.0, 0.0))


@triton.jit
def row_ranges(first, columns, values, x, y, bounds, BLOCK: tl.constexpr):
    """A sparse matrix times a vector; a program has the rows from its bound to the next program's."""
    for row in range(tl.load(bounds + tl.program_id(0)), tl.load(bounds + tl.program_id(0) + 1)):
        with wlt.region("row"):
            end = tl.load(first + row + 1)
            sums = tl.zeros((BLOCK,), tl.float32)
            for start in range(tl.load(first + row), end, BLOCK):
                at = start + tl.arange(0, BLOCK)
                column = tl.load(columns + at, mask=at < end, other=0)
                sums += tl.load(values + at, mask=at < end, other=0.0) * tl.load(x + column)
        with wlt.region("store"):
            tl.store(y + row, tl.sum(sums, axis=0))


@triton.jit
def trimer_counts(reads, counts, BINS: tl.constexpr, BY_PROGRAM: tl.constexpr, BLOCK: tl.constexpr):
    """How often each word of three bases occurs in reads; an integer holds 16 bases, of which ten words are counted."""
    with wlt.region("read"):
        bases = tl.load(reads + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK))
    with wlt.region("count"):
        if BY_PROGRAM:
            seen = tl.zeros((BINS,), tl.int32)
            for at in tl.static_range(10):
                seen += tl.histogram((bases >> (2 * at)) & (BINS - 1), BINS)
            tl.atomic_add(counts + tl.arange(0, BINS), seen, sem="relaxed")
        else:
            for at in tl.static_range(10):
                tl.atomic_add(counts + ((bases >> (2 * at)) & (BINS - 1)), 1, sem="relaxed")


@triton.jit
def yuv_planes(rgb, yuv, count, BLOCK: tl.constexpr):
    """Three planes of colours as brightness and two differences; nothing to repair."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("rgb"):
        red, green, blue = tl.load(rgb + at), tl.load(rgb + count + at), tl.load(rgb + 2 * count + at)
    with wlt.region("yuv"):
        bright = 0.299 * red + 0.587 * green + 0.114 * blue
        tl.store(yuv + at, bright)
        tl.store(yuv + count + at, 0.492 * (blue - bright))
        tl.store(yuv + 2 * count + at, 0.877 * (red - bright))
