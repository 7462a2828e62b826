"""Statistics of a series of samples: median with interval, spread, drift and autocorrelation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Series = npt.NDArray[np.float64]

_QUANTILES = {"p5_ns": 0.05, "p25_ns": 0.25, "median_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95}
_Z = NormalDist().inv_cdf(0.975)
_MAX_STORED = 1000
RESOLUTION_NS = 0.1
"""Stored samples are rounded to this."""


def summarise(series: Series) -> dict[str, float]:
    """Return percentiles, mean, extremes and standard deviation under the field names of a row."""
    out = {
        name: float(value)
        for name, value in zip(_QUANTILES, np.quantile(series, list(_QUANTILES.values())), strict=True)
    }
    out |= {"mean_ns": float(series.mean()), "min_ns": float(series.min()), "max_ns": float(series.max())}
    out["std_ns"] = float(series.std(ddof=1)) if len(series) > 1 else 0.0
    return out


def median_interval(series: Series) -> tuple[float, float]:
    """Return the 95 % confidence interval of the median, from binomial ranks, without assuming a distribution."""
    ordered = np.sort(series)
    n = len(ordered)
    reach = _Z * math.sqrt(n) / 2
    low = math.floor(n / 2 - reach)
    return (float(ordered[low - 1]), float(ordered[n - low])) if low >= 1 else (-math.inf, math.inf)


def deviation(series: Series) -> float:
    """Return the larger distance from the median to an end of its interval, as a share of the median."""
    if len(series) < 2:
        return math.inf
    low, high = median_interval(series)
    middle = float(np.median(series))
    return max(high - middle, middle - low) / middle if middle > 0 else math.inf


def drift(series: Series) -> float:
    """Return by how much the last quarter is slower than the first; 0 if noise could explain it."""
    part = len(series) // 4
    first, last = series[:part], series[len(series) - part :]
    if part < 6:
        return 0.0
    before, after = median_interval(first), median_interval(last)
    if before[1] >= after[0] and after[1] >= before[0]:
        return 0.0
    return float(np.median(last) / max(np.median(first), RESOLUTION_NS) - 1)


def independent(series: Sequence[float]) -> float:
    """Return the effective number of independent samples, which is lower for an autocorrelated series.

    Assumes a first-order autoregressive process and uses the lag-1 correlation of ranks, which is robust to outliers.
    The estimate from a short series is too low by (1 + 4 * correlation) / length, which is corrected.
    """
    if len(series) <= 4:
        return 1.0
    ranks = np.argsort(np.argsort(series, kind="stable"), kind="stable") - (len(series) - 1) / 2
    if np.ptp(series) == 0:
        return float(len(series))
    estimate = float(ranks[1:] @ ranks[:-1]) / float(ranks @ ranks)
    correlation = min(max((len(series) * estimate + 1) / (len(series) - 4), 0.0), 1.0)
    return max(len(series) * (1 - correlation) / (1 + correlation), 1.0)


def thinned(series: Series) -> tuple[float, ...]:
    """Return at most a thousand samples, evenly spaced and in order, rounded to 0.1 ns."""
    chosen = series if len(series) <= _MAX_STORED else series[np.linspace(0, len(series) - 1, _MAX_STORED).astype(int)]
    return tuple(round(float(value), 1) for value in chosen)
