"""Fit a kernel's time against the delay that was put into one of its regions.

Launches come in rounds: each round has every delay once, in a random order, so that slow changes of the clock, of
power or of memory shift a whole round and not the difference between delays. Every round gives one slope by least
squares with an intercept of its own. The answer is their trimmed mean, which single launches that something else held
up cannot move far, with Student's interval for it (Tukey and McLaughlin).

Launches without a delay tell what each delay adds, but take no part in the slope: to enter the loop of a delay at all
costs some cycles that depend on the code around it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.analyse.resample import student

Float = npt.NDArray[np.float64]
CONFIDENCE = 0.95
FEWEST_ROUNDS = 3
"""Rounds that make an interval."""
_TRIM = 0.2


@dataclass(frozen=True)
class DelaySample:
    """One launch: its round, the cycles that each execution of the region was delayed, and the kernel's cycles.

    `level` is what delays of all rounds that are about the same go by.
    """

    round: int
    level: float
    delay: float
    cycles: float


@dataclass(frozen=True)
class Estimate:
    """A value with its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class DelayPoint:
    """What delays of one level added to the kernel, in cycles, against launches of the same rounds without a delay;
    `delay` is their mean."""

    delay: float
    extra: Estimate
    launches: int


@dataclass(frozen=True)
class DelayFit:
    """Cycles that the kernel gets longer per cycle of delay in each execution (`rate`), and what it rests on.

    `base_cycles` is the median without a delay and `base_spread` the spread of those launches around it (the scaled
    median deviation) as a share. `hidden_up_to` is the longest delay that left the kernel's time as it was, if a longer
    one did not; 0 otherwise.
    """

    rate: Estimate
    points: tuple[DelayPoint, ...]
    base_cycles: float
    base_spread: float
    rounds: int
    hidden_up_to: float = 0.0


def fit_delays(samples: Sequence[DelaySample], confidence: float = CONFIDENCE) -> DelayFit | None:
    """Fit launches with several delays; None where there are too few rounds with and without a delay."""
    groups: dict[int, list[DelaySample]] = {}
    for sample in samples:
        groups.setdefault(sample.round, []).append(sample)
    rounds = [some for some in groups.values() if any(s.delay == 0 for s in some) and any(s.delay for s in some)]
    if len(rounds) < FEWEST_ROUNDS:
        return None
    base = np.array([s.cycles for some in rounds for s in some if s.delay == 0])
    middle = float(np.median(base))
    spread = 1.4826 * float(np.median(np.abs(base - middle))) / middle if middle else 0.0
    points = _points(rounds, confidence)
    return DelayFit(
        rate=trimmed_mean(np.array([_slope(some) for some in rounds]), confidence),
        points=points,
        base_cycles=middle,
        base_spread=spread,
        rounds=len(rounds),
        hidden_up_to=_hidden_up_to(points),
    )


def trimmed_mean(values: Float, confidence: float = CONFIDENCE) -> Estimate:
    """The mean without the fifth of the values at either end, and its confidence interval."""
    ordered = np.sort(values)
    count = len(ordered)
    cut = int(_TRIM * count)
    kept = ordered[cut : count - cut]
    mean = float(kept.mean())
    if len(kept) < 2:
        return Estimate(mean, -math.inf, math.inf)
    winsorised = np.clip(ordered, kept[0], kept[-1])
    error = float(winsorised.std(ddof=1)) / ((1 - 2 * cut / count) * math.sqrt(count))
    reach = student(confidence, len(kept) - 1) * error
    return Estimate(mean, mean - reach, mean + reach)


def _slope(some: Sequence[DelaySample]) -> float:
    delayed = [s for s in some if s.delay]
    # With one delay alone there is nothing else to compare it with.
    some = delayed if len({s.level for s in delayed}) > 1 else some
    delay = np.array([s.delay for s in some])
    cycles = np.array([s.cycles for s in some])
    away = delay - delay.mean()
    return float((away * (cycles - cycles.mean())).sum() / (away * away).sum())


def _points(rounds: Sequence[Sequence[DelaySample]], confidence: float) -> tuple[DelayPoint, ...]:
    extras: dict[float, list[tuple[float, float]]] = {}
    for some in rounds:
        base = np.mean([s.cycles for s in some if s.delay == 0])
        for sample in some:
            if sample.delay:
                extras.setdefault(sample.level, []).append((sample.delay, float(sample.cycles - base)))
    return tuple(
        DelayPoint(float(np.mean(delays)), trimmed_mean(np.array(added), confidence), len(added))
        for _, pairs in sorted(extras.items())
        for delays, added in [zip(*pairs, strict=True)]
    )


def _hidden_up_to(points: Sequence[DelayPoint]) -> float:
    """The longest delay up to which no delay had an effect, if the longest of all had one."""
    if not points or points[-1].extra.low <= 0:
        return 0.0
    hidden = 0.0
    for point in points:
        if point.extra.low > 0:
            break
        hidden = point.delay
    return hidden
