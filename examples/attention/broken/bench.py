"""Kernels with one thing wrong each, beside their repaired versions; `warplens diagnose` names what is wrong.

warplens diagnose examples/attention/broken/bench.py
warplens bench examples/attention/broken/bench.py --only decode_step
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from implementations import bytes_moved, float64, flops, launch, random_inputs

import warplens as wl

SOURCE = "broken/kernels.cu"
STAGED = {"low_occupancy": 128 << 10}
"""Bytes of keys and values in shared memory; the others stage 8 KB."""


@wl.benchmark(
    x="seq_len",
    values=[4096],
    lines={"impl": ["decode", "uncoalesced"]},
    fixed={"heads": 264, "head_dim": 128},
    choices={"head_dim": (64, 128)},
    baseline="decode",
    title="One query per head against its keys and values",
)
def decode_step(seq_len: int, impl: str, heads: int, head_dim: int) -> wl.Case:
    _, k, v = random_inputs(1, heads, seq_len, head_dim, "fp16")
    q = random_inputs(1, heads, 1, head_dim, "fp16")[0]

    def run(q: Any, k: Any, v: Any) -> Any:
        import torch

        out = torch.empty_like(q)
        room = 4 * (seq_len + 512 // (head_dim // 8) * head_dim)
        launch(SOURCE, impl, heads, 512, q, q, k, v, out, seq_len, 1 / math.sqrt(head_dim), shared=room)
        return out

    return wl.Case(
        run,
        (q, k, v),
        flops=4.0 * heads * seq_len * head_dim,
        bytes=2.0 * heads * (seq_len + 1) * head_dim * q.element_size(),
        reference=lambda q, k, v: float64(q, k, v, False),
    )


@wl.benchmark(
    x="seq_len",
    values=[1024],
    lines={"impl": ["rows", "low_occupancy", "serialised", "overflowing"]},
    fixed={"heads": 64},
    baseline="rows",
    title="A query per lane",
)
def query_per_lane(seq_len: int, impl: str, heads: int) -> wl.Case:
    head_dim = 64
    # Scores in the hundreds: what the maximum in a softmax is subtracted for.
    q, k, v = random_inputs(1, heads, seq_len, head_dim, "fp16", scale=8.0 if impl == "overflowing" else 1.0)

    def run(q: Any, k: Any, v: Any) -> Any:
        import torch

        out = torch.empty_like(q)
        turn = torch.zeros(1, dtype=torch.int32, device=q.device)
        grid = (-(-seq_len // 32), heads)
        arguments = (q, k, v, out, turn, seq_len, 1 / math.sqrt(head_dim))
        launch(SOURCE, impl, grid, 32, q, *arguments, shared=STAGED.get(impl, 8 << 10))
        return out

    return wl.Case(
        run,
        (q, k, v),
        flops=flops(1, heads, seq_len, head_dim, False),
        bytes=bytes_moved(1, heads, seq_len, head_dim, q.element_size()),
        reference=lambda q, k, v: float64(q, k, v, False),
        dtype="fp16",
    )
