"""Detect whether the device was throttled during a measurement."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warplens.bench.sample_statistics import Series, drift

_SLOWDOWN = 0.03
"""Smaller changes of the clock or of the times are normal."""


@dataclass(frozen=True)
class Reading:
    """The SM clock under load, and the reasons for throttling, such as "the power limit"."""

    mhz: float
    reasons: tuple[str, ...] = ()


def throttled(readings: Sequence[Reading], series: Series) -> str:
    """Return evidence of throttling from the clock readings, or from the times without readings; empty if none."""
    if readings:
        first, lowest = readings[0].mhz, min(reading.mhz for reading in readings)
        reasons = list(dict.fromkeys(reason for reading in readings for reason in reading.reasons))
        why = f", throttled by {' and '.join(reasons)}" if reasons else ""
        if lowest < first * (1 - _SLOWDOWN):
            return f"SM clock fell from {first:,.0f} to {lowest:,.0f} MHz{why} (NVML)"
        return f"SM clock at {lowest:,.0f} MHz{why} (NVML)" if reasons else ""
    moved = drift(series)
    if moved > _SLOWDOWN:
        return f"the last quarter of the samples is {moved:.1%} slower than the first (the clock could not be read)"
    return ""
