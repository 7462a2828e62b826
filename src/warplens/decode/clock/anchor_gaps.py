"""The time between neighbouring anchors of a clock, and how far the clock may have gone astray in it.

Residuals say how well the fit explains the anchors, not what happened between them. A gap has a mean rate, and if the
clock ran faster than that for a part of it, at rates of at most `high`, and slower for the rest, at rates of at least
`low`, a moment is at most gap * (high - rate) * (rate - low) / (rate * (high - low)) from a line of constant rate.

The rates of the gaps before and after limit `high` and `low`: a clock that changes once goes from one to the other. In
a gap that is faster or slower than both, the clock changed and changed back, so only the device's maximum limits it.
The same holds for a gap without neighbours, as in a kernel whose warps all live for seconds without an anchor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.decode.clock.anchor_fit import TIMER_TOLERANCE

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

SHORT_NS = 1e6
"""A clock that changes within a gap this short misplaces records by microseconds at most, as it changes by percents."""
_UNKNOWN_SPREAD = 0.15
"""How much faster than its mean a clock is assumed to run where the device's maximum is unknown."""


@dataclass(frozen=True)
class AnchorGaps:
    """The longest gap of a launch, the largest error in any gap, and the error that 99 % of the time is within."""

    longest_ns: float = 0.0
    error_ns: float = 0.0
    error_p99_ns: float = 0.0


def anchor_gaps(line: Int64, clock: Int64, ns: Int64, step_ns: float, fastest_mhz: float) -> AnchorGaps:
    """The gaps of a launch. `line` names the clock of each anchor; `fastest_mhz` is the device's maximum or 0."""
    order = np.lexsort((clock, ns, line))
    line, clock, ns = line[order], clock[order], ns[order]
    last = np.append(np.diff(line) != 0, True)
    gap = np.append(np.diff(ns), 0)[~last].astype(np.float64)
    cycles = np.append(np.diff(clock), 0)[~last].astype(np.float64)
    if not gap.sum():
        return AnchorGaps()
    error = _errors(line[~last], gap, np.maximum(cycles, 0.0), max(step_ns, 1.0), fastest_mhz / 1000)
    by_size = np.argsort(error)
    within = np.searchsorted(np.cumsum(gap[by_size]), 0.99 * gap.sum())
    return AnchorGaps(float(gap.max()), float(error.max()), float(error[by_size[min(within, len(gap) - 1)]]))


def _errors(line: Int64, gap: Float64, cycles: Float64, step_ns: float, fastest: float) -> Float64:
    """How far the moments of each gap may be from a line of constant rate; 0 in a short gap."""
    long = np.flatnonzero(gap >= SHORT_NS)
    error = np.zeros(len(gap))
    if not len(long):
        return error
    # Short gaps say little about rates, as the timer moves in steps; the neighbours of a long gap are other long ones.
    rate, of = cycles[long] / gap[long], line[long]
    lowest, highest = (rate * (1 + sign * 2 * step_ns / gap[long]) for sign in (-1, 1))
    first = np.insert(of[1:] != of[:-1], 0, True)
    last = np.append(first[1:], True)
    at = np.arange(len(long))
    before, after = at - ~first, at + ~last
    before, after = np.where(first, after, before), np.where(last, before, after)
    low, high = np.minimum(lowest[before], lowest[after]), np.maximum(highest[before], highest[after])
    limit = fastest * (1 + TIMER_TOLERANCE) if fastest > 0 else rate.max() * (1 + _UNKNOWN_SPREAD)
    unknown = first & last
    low = np.where((highest < low) | unknown, 0.0, low)
    high = np.where((lowest > high) | unknown, limit, np.minimum(high, limit))
    inside = np.maximum(high - rate, 0.0) * np.maximum(rate - low, 0.0)
    error[long] = gap[long] * inside / np.maximum(rate * (high - low), 1e-12)
    return error
