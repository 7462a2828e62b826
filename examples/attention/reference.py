"""Compute attention in double precision and the error of a result."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.generic]

TOLERANCE = {"fp32": 1e-5, "fp16": 2e-3, "bf16": 1.5e-2}
"""Limit of the relative error (of the norms) on random data, for a kernel with fp32 sums and inputs of that type."""


@dataclass(frozen=True)
class Error:
    """Error of a result: `relative` is the norm of the difference over the norm of the reference."""

    relative: float
    largest: float
    nan: int
    inf: int

    def within(self, tolerance: float) -> bool:
        return self.nan == 0 and self.inf == 0 and self.relative <= tolerance


def attention(q: Array, k: Array, v: Array, *, causal: bool = False) -> NDArray[np.float64]:
    """Compute softmax(q k' / sqrt(head size)) v over the last two axes in float64."""
    q, k, v = (each.astype(np.float64) for each in (q, k, v))
    scores = q @ np.swapaxes(k, -1, -2) / np.sqrt(q.shape[-1])
    if causal:
        hidden = np.triu(np.ones(scores.shape[-2:], bool), 1)
        scores = np.where(hidden, -np.inf, scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    result: NDArray[np.float64] = weights @ v / weights.sum(-1, keepdims=True)
    return result


def error(out: Array, expected: NDArray[np.float64]) -> Error:
    """Compare `out` with the reference."""
    given = out.astype(np.float64)
    difference = given - expected
    return Error(
        relative=float(np.linalg.norm(difference) / np.linalg.norm(expected)),
        largest=float(np.abs(difference).max()),
        nan=int(np.isnan(given).sum()),
        inf=int(np.isinf(given).sum()),
    )


def to_bf16(x: Array) -> NDArray[np.uint16]:
    """Round to the nearest bfloat16, returned as bits because numpy has no such type."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: NDArray[np.uint16]) -> NDArray[np.float32]:
    return (bits.astype(np.uint32) << 16).view(np.float32)
