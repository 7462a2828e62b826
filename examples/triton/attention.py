"""A fused attention forward pass with marks. Needs a GPU and torch.

Run: python examples/triton/attention.py [out.warplens]
"""

from __future__ import annotations

import sys

import triton
import triton.language as tl

import warplens as wl
import warplens.triton as wlt


@triton.jit
def attention(q, k, v, out, scale, length, BM: tl.constexpr, BN: tl.constexpr, HEAD: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * length * HEAD
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    width = tl.arange(0, HEAD)
    with wlt.region("load q"):
        query = tl.load(q + head + rows[:, None] * HEAD + width[None, :])
    top = tl.full((BM,), -float("inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, HEAD), tl.float32)
    for start in range(0, length, BN):
        columns = start + tl.arange(0, BN)
        with wlt.region("qk"):
            keys = tl.load(k + head + columns[None, :] * HEAD + width[:, None])
            scores = tl.dot(query, keys)
        with wlt.region("softmax"):
            scores *= scale  # after the mark: a mark between the product and this line would keep both results live
            higher = tl.maximum(top, tl.max(scores, axis=1))
            scores = tl.exp2(scores - higher[:, None])
            shrink = tl.exp2(top - higher)
            total = total * shrink + tl.sum(scores, axis=1)
            acc = acc * shrink[:, None]
            top = higher
        with wlt.region("pv"):
            values = tl.load(v + head + columns[:, None] * HEAD + width[None, :])
            acc = tl.dot(scores.to(values.dtype), values, acc)
    with wlt.region("store"):
        result = (acc / total[:, None]).to(out.dtype.element_ty)
        tl.store(out + head + rows[:, None] * HEAD + width[None, :], result)


def main(path: str | None = None) -> None:
    import torch

    if not torch.cuda.is_available():
        sys.exit("this example needs a GPU")
    heads, length, width = 32, 2048, 64
    q, k, v = (torch.randn(heads, length, width, device="cuda", dtype=torch.float16) for _ in range(3))
    out = torch.empty_like(q)
    scale = width**-0.5 * 1.44269504
    with wl.profile(path) as profile:
        attention[(length // 128, heads)](q, k, v, out, scale, length, 128, 64, width, num_warps=4, num_stages=3)
    expected = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None])[0]
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2)
    for row in profile.trace.stats():
        print(f"{row.region:16} {row.count:10,} times, {row.p50_ns:10,.0f} ns")


if __name__ == "__main__":
    main(*sys.argv[1:2])
