"""Kernels as their authors write them, without a word of warplens: what automatic marks are proved on."""

# ruff: noqa: F841, SIM108
from __future__ import annotations

import triton
import triton.language as tl
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Triton 3.8 renamed both; newer versions keep the old names only to refuse them.
_copy = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
_write = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x + offsets, mask) + tl.load(y + offsets, mask)
    tl.store(out + offsets, total, mask)


@triton.jit
def row_softmax(out, source, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    offsets = tl.arange(0, BLOCK)
    inside = offsets < columns
    values = tl.load(source + row + offsets, inside, -float("inf"))
    values = tl.exp(values - tl.max(values, axis=0))
    result = values / tl.sum(values, axis=0)
    tl.store(out + row + offsets, result, inside)


@triton.jit
def layer_norm(x, out, weight, bias, n, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        total += tl.load(x + row + columns, columns < n, 0.0)
    mean = tl.sum(total, axis=0) / n
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        centred = tl.where(columns < n, tl.load(x + row + columns, columns < n, 0.0) - mean, 0.0)
        total += centred * centred
    scale = 1 / tl.sqrt(tl.sum(total, axis=0) / n + eps)
    for start in range(0, n, BLOCK):
        columns = start + tl.arange(0, BLOCK)
        inside = columns < n
        w = tl.load(weight + columns, inside)
        b = tl.load(bias + columns, inside)
        value = tl.load(x + row + columns, inside)
        tl.store(out + row + columns, (value - mean) * scale * w + b, inside)


@triton.jit
def gemm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        x = tl.load(pa)
        y = tl.load(pb)
        acc = tl.dot(x, y, acc)
        pa += BK
        pb += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@triton.jit
def gemm_tma(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in range(0, K, BK):
        x = a.load([row, k])
        y = b.load([k, column])
        acc = tl.dot(x, y, acc)
    c.store([row, column], acc.to(tl.float16))


@triton.jit
def gemm_persistent(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PROGRAMS: tl.constexpr):
    da = tl.make_tensor_descriptor(a, [M, K], [K, 1], [BM, BK])
    db = tl.make_tensor_descriptor(b, [K, N], [N, 1], [BK, BN])
    dc = tl.make_tensor_descriptor(c, [M, N], [N, 1], [BM, BN])
    columns = tl.cdiv(N, BN)
    for tile in tl.range(tl.program_id(0), tl.cdiv(M, BM) * columns, PROGRAMS, flatten=True):
        row, column = tile // columns * BM, tile % columns * BN
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(0, K, BK):
            acc = tl.dot(da.load([row, k]), db.load([k, column]), acc)
        dc.store([row, column], acc.to(tl.float16))


@triton.jit
def gemm_specialised(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), tl.float32)
    for k in tl.range(0, K, BK, warp_specialize=True):
        acc = tl.dot(a.load([row, k]), b.load([k, column]), acc)
    c.store([row, column], acc.to(tl.float16))


@triton.jit
def online_softmax(scores, top, total, acc):
    higher = tl.maximum(top, tl.max(scores, axis=1))
    scores = tl.exp2(scores - higher[:, None])
    shrink = tl.exp2(top - higher)
    total = total * shrink + tl.sum(scores, axis=1)
    return scores, higher, total, acc * shrink[:, None]


@triton.jit
def flash_forward(q, k, v, out, lse, scale, length, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * length * HEAD
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    width = tl.arange(0, HEAD)
    query = tl.load(q + head + rows[:, None] * HEAD + width[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, HEAD), tl.float32)
    for start in range(0, tl.program_id(0) * BM, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(k + head + columns[None, :] * HEAD + width[:, None])
        scores = tl.dot(query, keys) * scale
        scores, top, total, acc = online_softmax(scores, top, total, acc)
        values = tl.load(v + head + columns[:, None] * HEAD + width[None, :])
        acc = tl.dot(scores.to(values.dtype), values, acc)
    for start in range(tl.program_id(0) * BM, tl.program_id(0) * BM + BM, BN):
        columns = start + tl.arange(0, BN)
        keys = tl.load(k + head + columns[None, :] * HEAD + width[:, None])
        scores = tl.dot(query, keys) * scale
        scores = tl.where(rows[:, None] >= columns[None, :], scores, -1.0e6)
        scores, top, total, acc = online_softmax(scores, top, total, acc)
        values = tl.load(v + head + columns[:, None] * HEAD + width[None, :])
        acc = tl.dot(scores.to(values.dtype), values, acc)
    tl.store(lse + tl.program_id(1) * length + rows, top + tl.log2(total))
    result = (acc / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + head + rows[:, None] * HEAD + width[None, :], result)


@triton.jit
def flash_backward(
    q, k, v, dout, dq, dk, dv, lse, delta, scale, length, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr
):
    head = tl.program_id(1).to(tl.int64) * length * HEAD
    stats = tl.program_id(1) * length
    columns = tl.program_id(0) * BN + tl.arange(0, BN)
    width = tl.arange(0, HEAD)
    here = head + columns[:, None] * HEAD + width[None, :]
    keys = tl.load(k + here)
    values = tl.load(v + here)
    grad_keys = tl.zeros((BN, HEAD), tl.float32)
    grad_values = tl.zeros((BN, HEAD), tl.float32)
    for start in range(0, length, BM):
        rows = start + tl.arange(0, BM)
        query = tl.load(q + head + rows[:, None] * HEAD + width[None, :])
        top = tl.load(lse + stats + rows)
        scores = tl.exp2(tl.dot(query, tl.trans(keys)) * scale - top[:, None])
        grad = tl.load(dout + head + rows[:, None] * HEAD + width[None, :])
        grad_values = tl.dot(tl.trans(scores.to(tl.float16)), grad, grad_values)
        inner = tl.dot(grad, tl.trans(values)) - tl.load(delta + stats + rows)[:, None]
        inner = (scores * inner).to(tl.float16)
        grad_keys = tl.dot(tl.trans(inner), query, grad_keys)
        step = tl.dot(inner, keys)
        tl.atomic_add(dq + head + rows[:, None] * HEAD + width[None, :], step, sem="relaxed")
    tl.store(dk + here, grad_keys.to(tl.float16))
    tl.store(dv + here, grad_values.to(tl.float16))


# The next two as torch.compile 2.11 writes them, decorators and helper imports aside.
@triton.jit
def triton_poi_fused_add_gelu_0(in_out_ptr0, in_ptr0, xnumel, XBLOCK: tl.constexpr):
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x0 = xindex % 3072
    tmp0 = tl.load(in_out_ptr0 + (x2), xmask).to(tl.float32)
    tmp1 = tl.load(in_ptr0 + (x0), xmask, eviction_policy="evict_last").to(tl.float32)
    tmp2 = tmp0 + tmp1
    tmp3 = 0.5
    tmp4 = tmp2 * tmp3
    tmp5 = 0.7071067811865476
    tmp6 = tmp2 * tmp5
    tmp7 = tl.erf(tmp6)
    tmp8 = 1.0
    tmp9 = tmp7 + tmp8
    tmp10 = tmp4 * tmp9
    tl.store(in_out_ptr0 + (x2), tmp10, xmask)


@triton.jit
def triton_red_fused_sum_1(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK: tl.constexpr, R0_BLOCK: tl.constexpr):
    rnumel = r0_numel
    RBLOCK: tl.constexpr = R0_BLOCK
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_base = tl.arange(0, R0_BLOCK)[None, :]
    rbase = r0_base
    x0 = xindex
    _tmp2 = tl.full([XBLOCK, R0_BLOCK], 0, tl.float32)
    for r0_offset in range(0, r0_numel, R0_BLOCK):
        r0_index = r0_offset + r0_base
        r0_mask = r0_index < r0_numel
        roffset = r0_offset
        rindex = r0_index
        r0_1 = r0_index
        tmp0 = tl.load(in_ptr0 + (r0_1 + r0_numel * x0), r0_mask & xmask, eviction_policy="evict_first", other=0.0)
        tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
        tmp3 = _tmp2 + tmp1
        _tmp2 = tl.where(r0_mask & xmask, tmp3, _tmp2)
    tmp2 = tl.sum(_tmp2, 1)[:, None]
    tl.store(out_ptr0 + (x0), tmp2, xmask)


@triton.jit
def collatz(out, limit):
    number = tl.program_id(0) + 1
    steps = 0
    while number > 1 and steps < limit:
        if number % 2 == 0:
            number = number // 2
        else:
            number = 3 * number + 1
        steps += 1
    tl.store(out + tl.program_id(0), steps)


@gluon.jit
def gluon_scale(x, out, factor, n, BLOCK: gl.constexpr, layout: gl.constexpr):
    offsets = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    values = gl.load(x + offsets, mask=offsets < n)
    gl.store(out + offsets, values * factor, mask=offsets < n)


@gluon.jit
def gluon_load(a, b, tiles_a, tiles_b, ready, empty, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr):
    stages: gl.constexpr = tiles_a.type.shape[0]
    for step in range(gl.cdiv(K, BK)):
        stage = step % stages
        mbarrier.wait(empty.index(stage), ((step // stages) & 1) ^ 1)
        barrier = ready.index(stage)
        mbarrier.expect(barrier, a.block_type.nbytes + b.block_type.nbytes)
        _copy(a, [gl.program_id(0) * BM, step * BK], barrier, tiles_a.index(stage))
        _copy(b, [step * BK, gl.program_id(1) * BN], barrier, tiles_b.index(stage))


@gluon.jit
def gluon_multiply(
    c, tiles_a, tiles_b, ready, empty, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, num_warps: gl.constexpr
):
    stages: gl.constexpr = tiles_a.type.shape[0]
    layout: gl.constexpr = gl.NVMMADistributedLayout(
        version=[3, 0], warps_per_cta=[num_warps, 1], instr_shape=[16, BN, 16]
    )
    acc = gl.zeros((BM, BN), gl.float32, layout)
    for step in range(gl.cdiv(K, BK)):
        stage = step % stages
        mbarrier.wait(ready.index(stage), (step // stages) & 1)
        acc = warpgroup_mma(tiles_a.index(stage), tiles_b.index(stage), acc, is_async=True)
        acc = warpgroup_mma_wait(0, deps=[acc])
        mbarrier.arrive(empty.index(stage), count=1)
    tile = gl.allocate_shared_memory(c.dtype, c.block_type.shape, c.layout)
    tile.store(acc.to(c.dtype))
    fence_async_shared()
    _write(c, [gl.program_id(0) * BM, gl.program_id(1) * BN], tile)
    tma.store_wait(0)


@gluon.jit
def gluon_gemm(
    a, b, c, K, BM: gl.constexpr, BN: gl.constexpr, BK: gl.constexpr, STAGES: gl.constexpr, num_warps: gl.constexpr
):
    tiles_a = gl.allocate_shared_memory(a.dtype, [STAGES, BM, BK], a.layout)
    tiles_b = gl.allocate_shared_memory(b.dtype, [STAGES, BK, BN], b.layout)
    ready = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(ready.index(stage), count=1)
        mbarrier.init(empty.index(stage), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (gluon_multiply, (c, tiles_a, tiles_b, ready, empty, K, BM, BN, BK, num_warps)),
            (gluon_load, (a, b, tiles_a, tiles_b, ready, empty, K, BM, BN, BK)),
        ],
        [1],
        [24],
    )


@triton.jit
def copy_2d(source, target, rows, columns, source_row, source_column, target_row, target_column,
            ROWS: tl.constexpr, COLUMNS: tl.constexpr):  # fmt: skip
    """A tile per block, with every stride given: nothing but addresses, which fill the registers."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    inside = (row < rows) & (column < columns)
    tile = tl.load(source + row * source_row + column * source_column, mask=inside)
    tl.store(target + row * target_row + column * target_column, tile, mask=inside)
