"""The Triton and Gluon kernels of the seventh set."""

from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import fence_async_shared, mbarrier, tma

import warplens.triton as wlt

# Triton 3.8 renamed it; newer versions raise an error for the old name.
_copy = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared


@triton.jit
def causal_conv(x, w, y, channels, TIMES: tl.constexpr, CHANNELS: tl.constexpr):
    """A depthwise convolution of four taps along time; the channels of a time step lie side by side."""
    times = tl.program_id(1) * TIMES + tl.arange(0, TIMES)
    mine = tl.program_id(0) * CHANNELS + tl.arange(0, CHANNELS)
    sums = tl.zeros((TIMES, CHANNELS), tl.float32)
    with wlt.region("taps"):
        for tap in tl.static_range(4):
            at = times - tap
            taken = tl.load(x + at[:, None] * channels + mine[None, :], mask=at[:, None] >= 0, other=0.0)
            sums += taken * tl.load(w + tap * channels + mine)[None, :]
    with wlt.region("result"):
        tl.store(y + times[:, None] * channels + mine[None, :], tl.maximum(sums, 0.0))


@triton.jit
def int8_matvec(w, scales, x, y, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Rows of 8-bit weights times a vector, scaled row by row."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    sums = tl.zeros((ROWS, BLOCK), tl.float32)
    for start in tl.range(0, columns, BLOCK, num_stages=STAGES):
        with wlt.region("step"):
            at = start + tl.arange(0, BLOCK)
            weights = tl.load(w + rows[:, None].to(tl.int64) * columns + at[None, :])
            sums += weights.to(tl.float32) * tl.load(x + at)[None, :]
    with wlt.region("finish"):
        tl.store(y + rows, tl.sum(sums, axis=1) * tl.load(scales + rows))


@triton.jit
def norm_gradients(dy, x, means, scales, out, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """The gradients of a layer norm's weight and bias: sums over rows, which the programs of a column share."""
    mine = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    each = rows // tl.num_programs(1)
    weight, bias = tl.zeros((ROWS, COLUMNS), tl.float32), tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(tl.program_id(1) * each, (tl.program_id(1) + 1) * each, ROWS):
        with wlt.region("rows"):
            row = start + tl.arange(0, ROWS)
            at = row[:, None] * columns + mine[None, :]
            slope, values = tl.load(dy + at), tl.load(x + at)
            weight += slope * (values - tl.load(means + row)[:, None]) * tl.load(scales + row)[:, None]
            bias += slope
    with wlt.region("result"):
        tl.atomic_add(out + mine, tl.sum(weight, axis=0))
        tl.atomic_add(out + columns + mine, tl.sum(bias, axis=0))


@triton.jit
def orbits(state, out, count, tiles, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    """Planets around a star, each moved by STEPS leaps; a program takes `tiles` tiles of them."""
    for tile in range(tl.program_id(0) * tiles, (tl.program_id(0) + 1) * tiles):
        at = tile * BLOCK + tl.arange(0, BLOCK)
        with wlt.region("get"):
            x, y = tl.load(state + at), tl.load(state + count + at)
            u, v = tl.load(state + 2 * count + at), tl.load(state + 3 * count + at)
        with wlt.region("leap"):
            for _ in range(STEPS):
                x += 0.01 * u
                y += 0.01 * v
                near = tl.rsqrt(x * x + y * y)
                pull = 0.01 * near * near * near
                u -= pull * x
                v -= pull * y
        with wlt.region("put"):
            tl.store(out + at, x)
            tl.store(out + count + at, y)


@triton.jit
def causal_attention(
    q, k, v, out, blocks, scale, MIRRORED: tl.constexpr, BLOCK: tl.constexpr, HEAD: tl.constexpr, STAGES: tl.constexpr
):
    """Attention to earlier tokens; a program takes two blocks of queries, neighbours or one from each end."""
    lanes = tl.arange(0, HEAD)
    for turn in range(2):
        block = 2 * tl.program_id(0) + turn
        if MIRRORED:
            block = tl.program_id(0) + turn * (blocks - 1 - 2 * tl.program_id(0))
        rows = block * BLOCK + tl.arange(0, BLOCK)
        with wlt.region("query"):
            query = tl.load(q + rows[:, None] * HEAD + lanes[None, :])
        most = tl.full((BLOCK,), -1e30, tl.float32)
        total = tl.zeros((BLOCK,), tl.float32)
        mixed = tl.zeros((BLOCK, HEAD), tl.float32)
        for tile in tl.range(0, block + 1, num_stages=STAGES):
            with wlt.region("tile"):
                columns = tile * BLOCK + tl.arange(0, BLOCK)
                keys = tl.load(k + columns[None, :] * HEAD + lanes[:, None])
                values = tl.load(v + columns[:, None] * HEAD + lanes[None, :])
                scores = tl.where(rows[:, None] >= columns[None, :], tl.dot(query, keys) * scale, -1e30)
                peak = tl.maximum(most, tl.max(scores, axis=1))
                powers = tl.exp(scores - peak[:, None])
                shrink = tl.exp(most - peak)
                total = total * shrink + tl.sum(powers, axis=1)
                mixed = tl.dot(powers.to(tl.float16), values, mixed * shrink[:, None])
                most = peak
        with wlt.region("result"):
            tl.store(out + rows[:, None] * HEAD + lanes[None, :], mixed / total[:, None])


@triton.jit
def pairwise_l1(x, y, out, n, depth, BM: tl.constexpr, BN: tl.constexpr):
    """Sums of absolute differences between points; memory holds each coordinate of all points side by side."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    sums = tl.zeros((BM, BN), tl.float32)
    for axis in range(depth):
        with wlt.region("axis"):
            left, right = tl.load(x + axis * n + rows), tl.load(y + axis * n + columns)
            sums += tl.abs(left[:, None] - right[None, :])
    with wlt.region("result"):
        tl.store(out + rows[:, None] * n + columns[None, :], sums)


@triton.jit
def key_sums(keys, values, sums, KEYS: tl.constexpr, ONE_BY_ONE: tl.constexpr, BLOCK: tl.constexpr):
    """Sums of the values with the same key; there are few keys."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("get"):
        key, value = tl.load(keys + at), tl.load(values + at)
    with wlt.region("sum"):
        if ONE_BY_ONE:
            tl.atomic_add(sums + key, value, sem="relaxed")
        else:
            for one in tl.static_range(KEYS):
                tl.atomic_add(sums + one, tl.sum(tl.where(key == one, value, 0.0), axis=0), sem="relaxed")


@gluon.jit
def fetch_groups(x, ends, places, ring, full, empty, count, FROM_START: gl.constexpr):
    """Copy the program's tiles into the ring; each group of tiles has a place of its own in memory."""
    stages: gl.constexpr = ring.type.shape[0]
    rows: gl.constexpr = ring.type.shape[1]
    group = 0
    for step in range(count):
        stage = step % stages
        tile = step * gl.num_programs(0) + gl.program_id(0)
        with wlt.region("slot"):
            mbarrier.wait(empty.index(stage), ((step // stages) & 1) ^ 1)
        with wlt.region("fetch"):
            if FROM_START:
                group = 0
            while gl.load(ends + group) <= tile:
                group += 1
            at = gl.load(places + group) + tile
            mbarrier.expect(full.index(stage), x.block_type.nbytes)
            _copy(x, [at * rows, 0], full.index(stage), ring.index(stage))


@gluon.jit
def add_groups(y, ring, full, empty, count, num_warps: gl.constexpr):
    stages: gl.constexpr = ring.type.shape[0]
    rows: gl.constexpr = ring.type.shape[1]
    columns: gl.constexpr = ring.type.shape[2]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [num_warps, 1], [1, 0])
    sums = gl.zeros((rows, columns), gl.float32, layout)
    for step in range(count):
        stage = step % stages
        with wlt.region("tile"):
            mbarrier.wait(full.index(stage), (step // stages) & 1)
        with wlt.region("add"):
            sums += ring.index(stage).load(layout).to(gl.float32)
        mbarrier.arrive(empty.index(stage), count=1)
    row = gl.arange(0, rows, gl.SliceLayout(1, layout))
    column = gl.arange(0, columns, gl.SliceLayout(0, layout))
    with wlt.region("out"):
        gl.store(y + (gl.program_id(0) * rows + row[:, None]) * columns + column[None, :], sums)


@gluon.jit
def grouped_tiles(x, ends, places, y, count, STAGES: gl.constexpr, FROM_START: gl.constexpr, num_warps: gl.constexpr):
    """Sums of tiles of ragged groups: the warp that fetches looks up the groups, from the start or further on."""
    shape: gl.constexpr = x.block_type.shape
    ring = gl.allocate_shared_memory(x.dtype, [STAGES, shape[0], shape[1]], x.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (add_groups, (y, ring, full, empty, count, num_warps)),
            (fetch_groups, (x, ends, places, ring, full, empty, count, FROM_START)),
        ],
        [1],
        [24],
    )


@gluon.jit
def rotary(x, cosines, sines, y, heads, ROWS: gl.constexpr, HALF: gl.constexpr, num_warps: gl.constexpr):
    """Rotary embedding: the halves of each head's row turned by its token's angles; nothing to repair."""
    layout: gl.constexpr = gl.BlockedLayout([1, 4], [2, 16], [num_warps, 1], [1, 0])
    row = gl.program_id(0) * ROWS + gl.arange(0, ROWS, gl.SliceLayout(1, layout))
    lane = gl.arange(0, HALF, gl.SliceLayout(0, layout))
    at = row[:, None] * (2 * HALF) + lane[None, :]
    angle = (row // heads)[:, None] * HALF + lane[None, :]
    with wlt.region("get"):
        left, right = gl.load(x + at), gl.load(x + at + HALF)
        cosine, sine = gl.load(cosines + angle), gl.load(sines + angle)
    with wlt.region("put"):
        gl.store(y + at, left * cosine - right * sine)
        gl.store(y + at + HALF, right * cosine + left * sine)
