"""Tie one clock to another by many bounds on their difference, with an error for every moment.

A reading of one clock between two readings of another bounds their difference, and so does a message: it cannot arrive
before it was sent. A line through all bounds gives the usual drift. Around the line, the difference may wander, but
not faster than oscillators do: so each bound also holds at other times, less and less tightly, and at each moment the
tightest bounds from both sides enclose the truth.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warplens.record.rank_notes import ClockSample
from warplens.trace.interval_fit import ClockLine, Float64, Int64, fit_intervals

WANDER = 1e-6
"""How much the rate of an oscillator changes while a job runs, by its temperature."""
HOST_DRIFT = 2e-4
"""The largest relative drift between two hosts' uncorrected clocks: two oscillators of 100 ppm."""
_STEPS = 6
"""Each step of the inverse reduces its error by the drift."""


@dataclass(frozen=True)
class ClockTie:
    """What to add to one clock to get another: `line`, and around it, at each knot, at least `low`, at most `high`."""

    line: ClockLine
    knots: Int64
    low: Float64
    high: Float64
    rate: float

    def __call__(self, time: Int64) -> Int64:
        """Times of the one clock on the other."""
        low, high = self._around(time)
        moved: Int64 = self.line(time) + np.rint((low + high) / 2).astype(np.int64)
        return moved

    def error_ns(self, time: Int64) -> Float64:
        """How far `__call__` may be off. Bounds that contradict each other are all in doubt."""
        low, high = self._around(time)
        error: Float64 = np.where(high >= low, (high - low) / 2, low - high) + 1.0
        return error

    def inverse(self, other: Int64) -> Int64:
        """Times of the other clock on the one."""
        time = other - self.line.offset_ns
        for _ in range(_STEPS):
            time = time + (other - self(time))
        return time

    def _around(self, time: Int64) -> tuple[Float64, Float64]:
        after = np.searchsorted(self.knots, time)
        left, right = np.maximum(after - 1, 0), np.minimum(after, len(self.knots) - 1)
        to_left = self.rate * np.abs(time - self.knots[left])
        to_right = self.rate * np.abs(self.knots[right] - time)
        low: Float64 = np.maximum(self.low[left] - to_left, self.low[right] - to_right)
        high: Float64 = np.minimum(self.high[left] + to_left, self.high[right] + to_right)
        return low, high


def tie_clocks(time: Int64, low: Int64, high: Int64, *, drift: float = HOST_DRIFT) -> ClockTie:
    """The tie of two clocks whose difference at `time` is at least `low` and at most `high`; at least one bound."""
    order = np.argsort(time, kind="stable")
    time, low, high = time[order], low[order], high[order]
    fit = fit_intervals(time, low, high, drift)
    offset = fit.line(time) - time
    lows, highs = (low - offset).astype(np.float64), (high - offset).astype(np.float64)
    rate = WANDER + float(np.abs(fit.corners[:, 1]).max())
    steps = rate * np.diff(time)
    for at, step in enumerate(steps.tolist()):
        lows[at + 1] = max(lows[at + 1], lows[at] - step)
        highs[at + 1] = min(highs[at + 1], highs[at] + step)
    for at in range(len(steps) - 1, -1, -1):
        lows[at] = max(lows[at], lows[at + 1] - steps[at])
        highs[at] = min(highs[at], highs[at + 1] + steps[at])
    return ClockTie(fit.line, time, lows, highs, rate)


def tie_samples(samples: Sequence[ClockSample]) -> ClockTie:
    """The tie of a clock to the host's clock, by readings of it."""
    before, clock, after = (np.array(column, np.int64) for column in zip(*samples, strict=True))
    return tie_clocks(clock, before - clock, after - clock)
