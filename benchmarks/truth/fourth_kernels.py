"""The Triton and Gluon kernels of the fourth set."""

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
def layer_norm(x, y, rows, COLUMNS: tl.constexpr, BLOCK: tl.constexpr, STAGES: tl.constexpr):
    """Rows with mean 0 and variance 1; a program takes every so many of them. STAGES is how far loads run ahead."""
    for row in range(tl.program_id(0), rows, tl.num_programs(0)):
        start = row.to(tl.int64) * COLUMNS
        total = tl.zeros((BLOCK,), tl.float32)
        squares = tl.zeros((BLOCK,), tl.float32)
        with wlt.region("reduce"):
            for first in tl.range(0, COLUMNS, BLOCK, num_stages=STAGES):
                values = tl.load(x + start + first + tl.arange(0, BLOCK))
                total += values
                squares += values * values
            mean = tl.sum(total, axis=0) / COLUMNS
            scale = tl.rsqrt(tl.sum(squares, axis=0) / COLUMNS - mean * mean + 1e-5)
        with wlt.region("apply"):
            for first in tl.range(0, COLUMNS, BLOCK, num_stages=STAGES):
                at = start + first + tl.arange(0, BLOCK)
                tl.store(y + at, (tl.load(x + at) - mean) * scale)


@triton.jit
def expert_sums(x, first, count, expert, y, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """Sums of the rows of each expert; a program takes `count` rows from `first` on."""
    program = tl.program_id(0)
    start = tl.load(first + program)
    rows = tl.load(count + program)
    columns = tl.arange(0, COLUMNS)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(0, rows, ROWS):
        at = step + tl.arange(0, ROWS)
        with wlt.region("rows"):
            sums += tl.load(
                x + (start + at)[:, None] * COLUMNS + columns[None, :], mask=(at < rows)[:, None], other=0.0
            )
    with wlt.region("out"):
        tl.atomic_add(y + tl.load(expert + program) * COLUMNS + columns, tl.sum(sums, axis=0))


@triton.jit
def decode_scores(q, keys, y, length, BLOCK: tl.constexpr, HEAD: tl.constexpr):
    """Sum of the scores of a query against its keys, for one sequence and one part of its keys per program."""
    sequence = tl.program_id(0)
    each = length // tl.num_programs(1)
    lanes = tl.arange(0, HEAD)
    query = tl.load(q + sequence * HEAD + lanes)
    base = sequence.to(tl.int64) * length * HEAD
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(tl.program_id(1) * each, (tl.program_id(1) + 1) * each, BLOCK):
        with wlt.region("keys"):
            at = start + tl.arange(0, BLOCK)
            tile = tl.load(keys + base + at[:, None] * HEAD + lanes[None, :])
        with wlt.region("score"):
            total += tl.sum(tile * query[None, :], axis=1)
    with wlt.region("out"):
        tl.atomic_add(y + sequence, tl.sum(total, axis=0))


@triton.jit
def mixed_norm(x, w, y, COLUMNS: tl.constexpr):
    """A row: softmax, weighted and normalised again."""
    columns = tl.arange(0, COLUMNS)
    at = tl.program_id(0).to(tl.int64) * COLUMNS + columns
    with wlt.region("in"):
        values = tl.load(x + at)
        weights = tl.load(w + columns)
    with wlt.region("norm"):
        shifted = tl.exp(values - tl.max(values, axis=0))
        shares = shifted / tl.sum(shifted, axis=0)
        mixed = shares * weights + values
        centred = mixed - tl.sum(mixed, axis=0) / COLUMNS
        scale = tl.rsqrt(tl.sum(centred * centred, axis=0) / COLUMNS + 1e-5)
    with wlt.region("out"):
        tl.store(y + at, centred * scale + weights)


@triton.jit
def linear(a, w, bias, c, n, k, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    """c = a w^T + bias, a tile per program."""
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    depth = tl.arange(0, BK)
    left = a + rows[:, None] * k + depth[None, :]
    right = w + columns[None, :] * k + depth[:, None]
    acc = tl.zeros((BM, BN), tl.float32)
    with wlt.region("main"):
        for _ in range(0, k, BK):
            acc = tl.dot(tl.load(left), tl.load(right), acc)
            left += BK
            right += BK
    with wlt.region("epilogue"):
        acc += tl.load(bias + columns)[None, :]
        tl.store(c + rows[:, None] * n + columns[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def gather_rows(table, ids, y, WIDTH: tl.constexpr, EACH: tl.constexpr):
    """Rows of an embedding table, EACH of them per program: bound by memory, nothing to repair."""
    lanes = tl.arange(0, WIDTH)
    at = tl.program_id(0) * EACH + tl.arange(0, EACH)
    with wlt.region("a"):
        row = tl.load(ids + at)
    with wlt.region("b"):
        values = tl.load(table + row[:, None].to(tl.int64) * WIDTH + lanes[None, :])
    with wlt.region("c"):
        tl.store(y + at[:, None].to(tl.int64) * WIDTH + lanes[None, :], values)


@gluon.jit
def fetch_pages(pages, after, table, ring, full, empty, count, CHAINED: gl.constexpr):
    """Copy the sequence's pages into the ring: along a chain of page headers, or as a table lists them."""
    stages: gl.constexpr = ring.type.shape[0]
    rows: gl.constexpr = ring.type.shape[1]
    page = gl.load(table + gl.program_id(0) * count)
    for step in range(count):
        stage = step % stages
        with wlt.region("slot"):
            mbarrier.wait(empty.index(stage), ((step // stages) & 1) ^ 1)
        with wlt.region("page"):
            mbarrier.expect(full.index(stage), pages.block_type.nbytes)
            _copy(pages, [page * rows, 0], full.index(stage), ring.index(stage))
            if CHAINED:
                page = gl.load(after + page * 32)
            else:
                page = gl.load(table + gl.program_id(0) * count + (step + 1) % count)


@gluon.jit
def add_pages(y, ring, full, empty, count, num_warps: gl.constexpr):
    stages: gl.constexpr = ring.type.shape[0]
    rows: gl.constexpr = ring.type.shape[1]
    columns: gl.constexpr = ring.type.shape[2]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [8, 4], [num_warps, 1], [1, 0])
    sums = gl.zeros((rows, columns), gl.float32, layout)
    for step in range(count):
        stage = step % stages
        with wlt.region("data"):
            mbarrier.wait(full.index(stage), (step // stages) & 1)
        with wlt.region("add"):
            sums += ring.index(stage).load(layout).to(gl.float32)
        mbarrier.arrive(empty.index(stage), count=1)
    row = gl.arange(0, rows, gl.SliceLayout(1, layout))
    column = gl.arange(0, columns, gl.SliceLayout(0, layout))
    with wlt.region("out"):
        gl.store(y + (gl.program_id(0) * rows + row[:, None]) * columns + column[None, :], sums)


@gluon.jit
def paged_sums(pages, after, table, y, count, STAGES: gl.constexpr, CHAINED: gl.constexpr, num_warps: gl.constexpr):
    """Sums over the pages of a sequence, a program for each, with a warp that fetches and warps that add."""
    ring = gl.allocate_shared_memory(
        pages.dtype, [STAGES, pages.block_type.shape[0], pages.block_type.shape[1]], pages.layout
    )
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (add_pages, (y, ring, full, empty, count, num_warps)),
            (fetch_pages, (pages, after, table, ring, full, empty, count, CHAINED)),
        ],
        [1],
        [24],
    )


@gluon.jit
def stream_tiles(x, ring, full, empty, count):
    stages: gl.constexpr = ring.type.shape[0]
    rows: gl.constexpr = ring.type.shape[1]
    for step in range(count):
        stage = step % stages
        with wlt.region("slot"):
            mbarrier.wait(empty.index(stage), ((step // stages) & 1) ^ 1)
        with wlt.region("fetch"):
            mbarrier.expect(full.index(stage), x.block_type.nbytes)
            _copy(x, [(gl.program_id(0) * count + step) * rows, 0], full.index(stage), ring.index(stage))


@gluon.jit
def smooth_tiles(y, ring, full, empty, count, num_warps: gl.constexpr):
    stages: gl.constexpr = ring.type.shape[0]
    rows: gl.constexpr = ring.type.shape[1]
    columns: gl.constexpr = ring.type.shape[2]
    layout: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [num_warps, 1], [1, 0])
    sums = gl.zeros((rows, columns), gl.float32, layout)
    for step in range(count):
        stage = step % stages
        with wlt.region("data"):
            mbarrier.wait(full.index(stage), (step // stages) & 1)
        with wlt.region("math"):
            values = ring.index(stage).load(layout).to(gl.float32)
            power = values
            for _ in gl.static_range(3):
                power = gl.exp(-power * power) + 0.5 * values
            sums += power
        mbarrier.arrive(empty.index(stage), count=1)
    row = gl.arange(0, rows, gl.SliceLayout(1, layout))
    column = gl.arange(0, columns, gl.SliceLayout(0, layout))
    with wlt.region("out"):
        gl.store(y + (gl.program_id(0) * rows + row[:, None]) * columns + column[None, :], sums)


@gluon.jit
def smooth_sums(x, y, count, STAGES: gl.constexpr, num_warps: gl.constexpr):
    """Sums of a smooth function over tiles that one warp fetches and `num_warps` warps evaluate."""
    ring = gl.allocate_shared_memory(x.dtype, [STAGES, x.block_type.shape[0], x.block_type.shape[1]], x.layout)
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (smooth_tiles, (y, ring, full, empty, count, num_warps)),
            (stream_tiles, (x, ring, full, empty, count)),
        ],
        [1],
        [24],
    )
