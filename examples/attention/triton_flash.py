"""Flash attention forward in Triton with marks: online softmax, optional causal mask, heads of 64 or 128, any length.

    python examples/attention/run.py --impl triton_flash --seq-len 4096

Queries stay in shared memory, keys and values are loaded into it by TMA, and no score leaves the SM. Blocks of keys
that need no mask run in a separate loop, so only the diagonal (causal) or the last partial block computes a mask.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl

import warplens.triton as wlt

LOG2E = 1.4426950408889634


@dataclass(frozen=True)
class Config:
    """Tile sizes in rows of queries and keys, number of warps, and number of key and value tiles in flight."""

    rows: int
    keys: int
    warps: int
    stages: int


CONFIGS = {
    (64, False): Config(128, 64, 8, 3),
    (64, True): Config(128, 64, 4, 3),
    (128, False): Config(128, 64, 4, 2),
    (128, True): Config(128, 64, 4, 2),
}
"""Fastest configuration found by tune.py on an H200, by head size and causality (docs/results/attention.md)."""


@triton.jit
def _sweep(
    acc, total, top, query, k, v, head, first, last, rows, length, scale,
    BN: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr, MASK: tl.constexpr,
):  # fmt: skip
    """Apply the online softmax to keys `first` to `last`; `top` is the highest score of each row so far, in log2."""
    for start in range(first, last, BN):
        with wlt.region("qk"):
            keys = k.load([head, start, 0]).reshape(BN, HEAD)
            scores = tl.dot(query, keys.T)
        values = v.load([head, start, 0]).reshape(BN, HEAD)
        with wlt.region("softmax"):
            if MASK:
                columns = start + tl.arange(0, BN)
                seen = columns[None, :] <= rows[:, None] if CAUSAL else (columns < length)[None, :]
                scores = tl.where(seen, scores, -float("inf"))
            higher = tl.maximum(top, tl.max(scores, 1) * scale)
            weights = tl.exp2(scores * scale - higher[:, None])
            shrink = tl.exp2(top - higher)
            total = total * shrink + tl.sum(weights, 1)
            acc = acc * shrink[:, None]
            top = higher
        with wlt.region("pv"):
            acc = tl.dot(weights.to(values.dtype), values, acc)
    return acc, total, top


@triton.jit
def triton_flash(
    q, k, v, out, length, scale,
    BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr, CAUSAL: tl.constexpr, TAIL: tl.constexpr,
):  # fmt: skip
    """Process one block of BM queries of one head; `q`, `k`, `v`, `out` are descriptors of (heads, length, HEAD)."""
    head = tl.program_id(1)
    tile = tl.program_id(0)
    if CAUSAL:
        tile = tl.num_programs(0) - 1 - tile  # start with the longest rows, so that the grid ends with short blocks
    rows = tile * BM + tl.arange(0, BM)
    with wlt.region("load q"):
        query = q.load([head, tile * BM, 0]).reshape(BM, HEAD)
    acc = tl.zeros((BM, HEAD), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    top = tl.full((BM,), -float("inf"), tl.float32)
    if CAUSAL:
        whole = tile * BM // BN * BN
    elif TAIL:
        whole = length // BN * BN
    else:
        whole = length
    acc, total, top = _sweep(acc, total, top, query, k, v, head, 0, whole, rows, length, scale, BN, HEAD, CAUSAL, False)
    if CAUSAL or TAIL:
        last = tl.minimum((tile + 1) * BM, length) if CAUSAL else length
        acc, total, top = _sweep(
            acc, total, top, query, k, v, head, whole, last, rows, length, scale, BN, HEAD, CAUSAL, True
        )
    with wlt.region("store"):
        result = (acc / total[:, None]).to(out.dtype)
        out.store([head, tile * BM, 0], result.reshape(1, BM, HEAD))


def run(q: Any, k: Any, v: Any, out: Any, *, causal: bool = False, config: Config | None = None) -> Any:
    """Run attention on contiguous fp16 or bf16 tensors (batch, heads, length, head size) and return `out`."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    batch, heads, length, head = q.shape
    chosen = config or CONFIGS[head, causal]

    def tiles(tensor: Any, rows: int) -> TensorDescriptor:
        shape, strides = [batch * heads, length, head], [length * head, head, 1]
        return TensorDescriptor(tensor, shape, strides, [1, rows, head])

    grid = (triton.cdiv(length, chosen.rows), batch * heads)
    triton_flash[grid](
        tiles(q, chosen.rows), tiles(k, chosen.keys), tiles(v, chosen.keys), tiles(out, chosen.rows),
        length, LOG2E / head**0.5,
        BM=chosen.rows, BN=chosen.keys, HEAD=head, CAUSAL=causal, TAIL=length % chosen.keys != 0,
        num_warps=chosen.warps, num_stages=chosen.stages,
    )  # fmt: skip
    return out
