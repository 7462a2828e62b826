"""Causal attention in one kernel. Needs a GPU and torch. Run: python fused_attention.py [--repeat N] [--save FILE]"""

from __future__ import annotations

import argparse
import hashlib

import torch
import triton
import triton.language as tl


@triton.jit
def causal_attention(q, k, v, out, scale, length, ROWS: tl.constexpr, COLS: tl.constexpr, WIDTH: tl.constexpr):
    head = tl.program_id(1).to(tl.int64) * length * WIDTH
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    width = tl.arange(0, WIDTH)
    query = tl.load(q + head + rows[:, None] * WIDTH + width[None, :])
    highest = tl.full((ROWS,), -float("inf"), tl.float32)
    total = tl.zeros((ROWS,), tl.float32)
    acc = tl.zeros((ROWS, WIDTH), tl.float32)
    for start in range(0, (tl.program_id(0) + 1) * ROWS, COLS):
        columns = start + tl.arange(0, COLS)
        keys = tl.load(k + head + columns[None, :] * WIDTH + width[:, None])
        scores = tl.dot(query, keys) * scale
        scores = tl.where(rows[:, None] >= columns[None, :], scores, -float("inf"))
        higher = tl.maximum(highest, tl.max(scores, axis=1))
        scores = tl.exp2(scores - higher[:, None])
        shrink = tl.exp2(highest - higher)
        total = total * shrink + tl.sum(scores, axis=1)
        values = tl.load(v + head + columns[:, None] * WIDTH + width[None, :])
        acc = tl.dot(scores.to(values.dtype), values, acc * shrink[:, None])
        highest = higher
    result = (acc / total[:, None]).to(out.dtype.element_ty)
    tl.store(out + head + rows[:, None] * WIDTH + width[None, :], result)


def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    heads, length, width = q.shape
    out = torch.empty_like(q)
    scale = width**-0.5 * 1.4426950408889634
    grid = (triton.cdiv(length, 128), heads)
    causal_attention[grid](q, k, v, out, scale, length, ROWS=128, COLS=64, WIDTH=width, num_warps=4, num_stages=3)
    return out


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--heads", type=int, default=32)
    parser.add_argument("--length", type=int, default=2048)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--save", help="write the result to this file")
    options = parser.parse_args()
    if not torch.cuda.is_available():
        raise SystemExit("this example needs a GPU")
    torch.manual_seed(0)
    shape = (options.heads, options.length, 64)
    q, k, v = (torch.randn(shape, device="cuda", dtype=torch.float16) for _ in range(3))
    for _ in range(options.repeat):
        out = attention(q, k, v)
    expected = torch.nn.functional.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]
    torch.testing.assert_close(out, expected, rtol=1e-2, atol=1e-2)
    data = out.cpu().numpy().tobytes()
    print("attention", tuple(out.shape), hashlib.sha256(data).hexdigest())
    if options.save:
        with open(options.save, "wb") as file:
            file.write(data)


if __name__ == "__main__":
    main()
