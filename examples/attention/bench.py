"""Time attention over sequence lengths and check every implementation against float64. Needs a GPU.

warplens bench examples/attention/bench.py --seq-lengths 128,256,512,1024,2048,4096 -o results.json
warplens bench --plot results.json -o plots/
warplens bench examples/attention/bench.py --impl triton_flash,sdpa_cudnn --head-dim 128 --causal true
warplens diagnose examples/attention/bench.py --impl flash --seq-len 2048
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from implementations import ANY_DTYPE, ELEMENTS, HEAD_SIZES, IMPLEMENTATIONS, bytes_moved, float64, flops, random_inputs

import warplens as wl

TOLERANCE = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 8e-2}
"""Wide, because the first rows of a causal mask are large: PyTorch's own kernels reach 5e-3 in fp16 at 8192 keys."""


@lru_cache(maxsize=1)
def _expected(batch: int, heads: int, seq_len: int, head_dim: int, dtype: str, causal: bool) -> Any:
    """Return the float64 result; one cached result is enough because all lines of one length run in sequence."""
    return float64(*random_inputs(batch, heads, seq_len, head_dim, dtype), causal)


@wl.benchmark(
    x="seq_len",
    values=[128, 256, 512, 1024, 2048, 4096],
    lines={"impl": list(IMPLEMENTATIONS)},
    fixed={"head_dim": 64, "dtype": "fp16", "causal": False, "batch": 4, "heads": 32},
    choices={"head_dim": HEAD_SIZES, "dtype": tuple(ELEMENTS)},
    baseline="sdpa_cudnn",
    title="Attention, forward",
)
def attention(seq_len: int, impl: str, head_dim: int, dtype: str, causal: bool, batch: int, heads: int) -> wl.Case:
    if dtype == "fp32" and impl not in ANY_DTYPE:
        return wl.Case(skip=f"{impl} has no fp32")
    run = IMPLEMENTATIONS[impl]
    sizes = (batch, heads, seq_len, head_dim)
    q, k, v = random_inputs(*sizes, dtype)
    return wl.Case(
        lambda q, k, v: run(q, k, v, causal),
        (q, k, v),
        flops=flops(*sizes, causal),
        bytes=bytes_moved(*sizes, q.element_size()),
        reference=lambda *_: _expected(*sizes, dtype, causal),
        tolerance=TOLERANCE[dtype],
    )
