"""What a series of samples says: its median with an interval, its spread, and whether it drifts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

Series = npt.NDArray[np.float64]

_QUANTILES = {"p5_ns": 0.05, "p25_ns": 0.25, "median_ns": 0.5, "p75_ns": 0.75, "p95_ns": 0.95}
_Z = NormalDist().inv_cdf(0.975)
_MOST_KEPT = 1000
RESOLUTION_NS = 0.1
"""To which samples are kept."""


def summarise(series: Series) -> dict[str, float]:
    """Percentiles, mean, extremes and standard deviation, by the names that a row gives them."""
    out = {
        name: float(value)
        for name, value in zip(_QUANTILES, np.quantile(series, list(_QUANTILES.values())), strict=True)
    }
    out |= {"mean_ns": float(series.mean()), "min_ns": float(series.min()), "max_ns": float(series.max())}
    out["std_ns"] = float(series.std(ddof=1)) if len(series) > 1 else 0.0
    return out


def median_interval(series: Series) -> tuple[float, float]:
    """Between which two samples the true median lies with 95 %, whatever the distribution: the ranks of a binomial."""
    ordered = np.sort(series)
    n = len(ordered)
    reach = _Z * math.sqrt(n) / 2
    low = math.floor(n / 2 - reach)
    return (float(ordered[low - 1]), float(ordered[n - low])) if low >= 1 else (-math.inf, math.inf)


def deviation(series: Series) -> float:
    """How far that interval reaches from the median to the farther side, as a share of the median."""
    if len(series) < 2:
        return math.inf
    low, high = median_interval(series)
    middle = float(np.median(series))
    return max(high - middle, middle - low) / middle if middle > 0 else math.inf


def drift(series: Series) -> float:
    """By how much the last quarter is slower (or faster) than the first; 0 where the noise could explain it."""
    part = len(series) // 4
    first, last = series[:part], series[len(series) - part :]
    if part < 6:
        return 0.0
    before, after = median_interval(first), median_interval(last)
    if before[1] >= after[0] and after[1] >= before[0]:
        return 0.0
    return float(np.median(last) / max(np.median(first), RESOLUTION_NS) - 1)


def independent(series: Sequence[float]) -> float:
    """How many independent samples tell as much of the middle: fewer than there are where each resembles the last.

    By the correlation of neighbours' ranks, which a few outliers do not hide, as if it faded from sample to sample. A
    short series hides its slow changes in its own mean, and shows (1 + 4 correlation) / length less than there is.
    """
    if len(series) <= 4:
        return 1.0
    ranks = np.argsort(np.argsort(series, kind="stable"), kind="stable") - (len(series) - 1) / 2
    if np.ptp(series) == 0:
        return float(len(series))
    shown = float(ranks[1:] @ ranks[:-1]) / float(ranks @ ranks)
    alike = min(max((len(series) * shown + 1) / (len(series) - 4), 0.0), 1.0)
    return max(len(series) * (1 - alike) / (1 + alike), 1.0)


def thinned(series: Series) -> tuple[float, ...]:
    """At most a thousand samples, evenly chosen and in order, to a tenth of a nanosecond."""
    chosen = series if len(series) <= _MOST_KEPT else series[np.linspace(0, len(series) - 1, _MOST_KEPT).astype(int)]
    return tuple(round(float(value), 1) for value in chosen)
