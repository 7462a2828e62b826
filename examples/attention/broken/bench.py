"""Attention kernels with one problem each, which `warplens diagnose` names, and correct ones. Needs a GPU.

warplens diagnose examples/attention/broken/bench.py                       # all of them
warplens diagnose examples/attention/broken/bench.py --impl serialised
"""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from implementations import bytes_moved, float64, flops, launch, random_inputs

import warplens as wl

DECODE, ROWS = ("decode", "uncoalesced"), ("rows", "low_occupancy", "serialised", "overflowing")
TOKENS = {"decode": 1 << 18, "uncoalesced": 1 << 18, "serialised": 1 << 17}
"""Number of keys over all heads, enough to fill an H200 (default: 65,536)."""


@wl.benchmark(
    x="seq_len",
    values=[256],
    lines={"impl": [*DECODE, *ROWS]},
    title="Attention with one problem each",
)
def broken(seq_len: int, impl: str) -> wl.Case:
    return decode_step(seq_len, impl) if impl in DECODE else query_per_lane(seq_len, impl)


def decode_step(seq_len: int, impl: str) -> wl.Case:
    """Return a case with one query per head against its keys and values: much memory traffic, little arithmetic."""
    heads, head = max(TOKENS[impl] // seq_len, 1), 128
    q = random_inputs(1, heads, 1, head, "fp16")[0]
    _, k, v = random_inputs(1, heads, seq_len, head, "fp16")

    def run(q: Any, k: Any, v: Any) -> Any:
        import torch

        out = torch.empty_like(q)
        room = 4 * (seq_len + 256 // (head // 8) * head)
        launch("broken/decode.cu", impl, heads, 256, q, q, k, v, out, seq_len, 1 / math.sqrt(head), shared=room)
        return out

    return wl.Case(
        run,
        (q, k, v),
        flops=4.0 * heads * seq_len * head,
        bytes=2.0 * heads * (seq_len + 1) * head * q.element_size(),
        reference=lambda q, k, v: float64(q, k, v, False),
    )


def query_per_lane(seq_len: int, impl: str) -> wl.Case:
    """Return a case in which each lane of a warp has its own query."""
    heads, head = max(TOKENS.get(impl, 1 << 16) // seq_len, 1), 64
    # Scores in the hundreds overflow exp unless the softmax subtracts the maximum.
    q, k, v = random_inputs(1, heads, seq_len, head, "fp16", scale=8.0 if impl == "overflowing" else 1.0)

    def run(q: Any, k: Any, v: Any) -> Any:
        import torch

        out = torch.empty_like(q)
        turn = torch.zeros(1, dtype=torch.int32, device=q.device)
        grid = (-(-seq_len // 32), heads)
        staged = (128 if impl == "low_occupancy" else 8) << 10
        launch("broken/rows.cu", impl, grid, 32, q, q, k, v, out, turn, seq_len, 1 / math.sqrt(head), shared=staged)
        return out

    return wl.Case(
        run,
        (q, k, v),
        flops=flops(1, heads, seq_len, head, False),
        bytes=bytes_moved(1, heads, seq_len, head, q.element_size()),
        reference=lambda q, k, v: float64(q, k, v, False),
        tolerance=4e-3,
        dtype="fp32",  # the type it computes in, which picks the roof
    )
