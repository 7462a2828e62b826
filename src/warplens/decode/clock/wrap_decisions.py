"""How often a counter with few bits wrapped between two readings of the real time.

A stretch is what lies between two readings. Its records are in order, so each step of the counter from one to the next
is known but for whole wraps. What is decided, and how:

- No counter runs faster than FASTEST_MHZ. Where one more wrap would need that, there was none. Nothing else is assumed.
- Those stretches give the rates that occur in the launch. A longer stretch is decided where, at such a rate give or
  take RATE_MARGIN, only one number of wraps is possible. The launch says how many stretches needed this assumption.
- A wrap in a stretch of several steps may be in any of them, and a stretch without a reading at its end may have any
  number. Neither is decided.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]

FASTEST_MHZ = 4000.0
"""No GPU with such a counter runs faster."""
RATE_MARGIN = 0.05
"""How much slower or faster than the stretches of known length the clock may have run in the others."""
_READING_NS = 2000
"""How much longer or shorter than the cycles of a stretch its time may be: clock and timer are read one after the
other, and the timer has steps."""
_LONG_NS = 20_000
"""Stretches that are shorter say little about the rate."""
_TIMER_SIGMA_NS = 10 / 12**0.5 * 2**0.5
"""The standard error of a difference of two readings of a timer of 10 ns."""


@dataclass(frozen=True)
class TimedStretches:
    """The stretches of all tracks: the track, the points at both ends, the time between them and the sum of the steps.

    Points are numbered along all tracks: the start of each, its records, its exit. A stretch without a reading at its
    end has a time of -1.
    """

    track: Int64
    begin: Int64
    end: Int64
    ns: Int64
    cycles: Int64


def stretches_between(track: Int64, low: Int64, ns: Int64, wrap: int) -> TimedStretches:
    """The stretches of points, of which the track, the counter and the real time (or -1) are given."""
    last = np.append(track[1:] != track[:-1], True)[: len(track)]
    first = np.append(True, track[1:] != track[:-1])[: len(track)]
    edge = np.flatnonzero((ns >= 0) | last)
    begin, end = edge[:-1], edge[1:]
    same = track[begin] == track[end]
    begin, end = begin[same], end[same]
    total = np.cumsum(np.where(first, 0, (low - np.roll(low, 1)) % wrap))
    times = np.where(ns[end] >= 0, ns[end] - ns[begin], -1)
    return TimedStretches(track[begin], begin, end, times, total[end] - total[begin])


def decide_wraps(stretches: TimedStretches, wrap: int) -> tuple[Bool, Int64, int]:
    """Which stretches are decided, the wraps that their sums lack, and how many the rate has decided."""
    ns, cycles = stretches.ns.astype(np.float64), stretches.cycles.astype(np.float64)
    known = ns >= 0
    most = (ns + _READING_NS) * FASTEST_MHZ / 1000
    certain = known & (cycles <= most) & (cycles + wrap > most)
    wraps = np.zeros(len(ns), np.int64)
    telling = certain & (ns >= _LONG_NS)
    if not telling.any():
        return certain, wraps, 0
    slowest = (cycles / (ns + _READING_NS))[telling].min() * (1 - RATE_MARGIN)
    fastest = (cycles / np.maximum(ns - _READING_NS, 1))[telling].max() * (1 + RATE_MARGIN)
    fewest = np.maximum(np.ceil(((ns - _READING_NS) * slowest - cycles) / wrap), 0)
    highest = np.minimum((ns + _READING_NS) * fastest, most)
    only = known & ~certain & (fewest == np.floor((highest - cycles) / wrap))
    only &= (fewest == 0) | (stretches.end - stretches.begin == 1)
    wraps[only] = fewest[only].astype(np.int64)
    return certain | only, wraps, int(only.sum())


def mean_rate(cycles: Int64, ns: Int64, decided: Bool, nominal_mhz: float) -> tuple[float, float]:
    """Cycles per ns in all decided stretches together, and the error of that in MHz (two standard errors)."""
    cycles, ns = cycles[decided], ns[decided]
    time = float(ns.sum())
    if not time or not cycles.sum():
        rate = (nominal_mhz or 1000.0) / 1000
        return rate, rate * 1000
    rate = min(float(cycles.sum()) / time, FASTEST_MHZ / 1000)
    residual = float(np.square(cycles - rate * ns).sum()) ** 0.5
    step = rate * _TIMER_SIGMA_NS * len(ns) ** 0.5
    return rate, 2 * max(residual, step) / time * 1000
