"""When enough was measured: by how well the median is known, with a timeout that says what was still missing."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from warplens.bench.measurement_method import Method
from warplens.bench.sample_statistics import Series, deviation, drift

_DRIFT = 4.0
"""The first and last quarter may differ by this many times `rel_dev`: a quarter is known half as well as the whole."""
_LARGEST_BATCH = 100


@dataclass(frozen=True)
class Samples:
    """The samples in ns, and the condition that was not met when they ended; empty when all were."""

    series: Series
    unmet: str


def unmet(series: Series, method: Method, elapsed: float) -> str:
    """The first condition that does not hold yet: samples, time, deviation, drift; empty when all hold."""
    if len(series) < method.min_samples:
        return f"{len(series)} of at least {method.min_samples} samples"
    if elapsed < method.min_time and len(series) < method.max_samples:
        return f"{elapsed:.3g} s of at least {method.min_time:.3g} s measured"
    reached = deviation(series)
    if reached > method.rel_dev:
        return f"relative deviation {100 * reached:.3g} %, wanted at most {100 * method.rel_dev:.3g} %"
    moved = drift(series)
    if abs(moved) > _DRIFT * method.rel_dev:
        return f"drift: the last quarter {abs(moved):.1%} {'slower' if moved > 0 else 'faster'} than the first"
    return ""


def collect(take: Callable[[int], Iterable[float]], method: Method, seconds: Callable[[], float]) -> Samples:
    """Take samples, `take(n)` at a time, until every condition holds, `max_samples` are there or time is up.

    The first batch is small, so that one slow call cannot overrun the timeout by much; later ones grow with the
    number of samples, so that looking at them costs nothing.
    """
    begin = seconds()
    series, elapsed = np.empty(0), 0.0
    while True:
        size = max(min(len(series) // 2, _LARGEST_BATCH), 1)
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
