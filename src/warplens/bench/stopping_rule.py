"""Decide when to stop measuring: when the median is precise enough, or at a timeout."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from warplens.bench.measurement_method import Method
from warplens.bench.sample_statistics import Series, deviation, drift

_DRIFT_FACTOR = 4.0
"""The medians of the first and last quarter may differ by this many times `rel_dev`: each is half as precise."""
_MAX_BATCH = 100


@dataclass(frozen=True)
class Samples:
    """The samples in ns, and the stopping condition that was not met; empty if all were met."""

    series: Series
    unmet: str


def unmet(series: Series, method: Method, elapsed: float) -> str:
    """Return the first condition that is not met yet: samples, time, deviation or drift; empty if all are met."""
    if len(series) < method.min_samples:
        return f"{len(series)} of at least {method.min_samples} samples"
    if elapsed < method.min_time and len(series) < method.max_samples:
        return f"{elapsed:.3g} s of at least {method.min_time:.3g} s measured"
    reached = deviation(series)
    if reached > method.rel_dev:
        return f"relative deviation {100 * reached:.3g} %, target {100 * method.rel_dev:.3g} %"
    moved = drift(series)
    if abs(moved) > _DRIFT_FACTOR * method.rel_dev:
        return f"drift: the last quarter is {abs(moved):.1%} {'slower' if moved > 0 else 'faster'} than the first"
    return ""


def collect(take: Callable[[int], Iterable[float]], method: Method, seconds: Callable[[], float]) -> Samples:
    """Take samples, `take(n)` at a time, until every condition is met, or until `max_samples` or the timeout.

    The first batch is small, so that one slow call cannot exceed the timeout by much; later batches grow, so that
    checking the conditions costs little.
    """
    begin = seconds()
    series, elapsed = np.empty(0), 0.0
    while True:
        size = max(min(len(series) // 2, _MAX_BATCH), 1)
        if elapsed > 0:
            size = max(min(size, int((method.timeout - elapsed) * len(series) / elapsed)), 1)
        size = min(size, method.max_samples - len(series))
        series = np.append(series, np.fromiter(take(size), float))
        elapsed = seconds() - begin
        missing = unmet(series, method, elapsed)
        if not missing:
            return Samples(series, "")
        if elapsed >= method.timeout:
            return Samples(series, f"timeout after {method.timeout:g} s: {missing}")
        if len(series) >= method.max_samples:
            return Samples(series, f"{method.max_samples} samples taken: {missing}")
