"""Whether the device slowed down while it was measured, and what shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from warplens.bench.sample_statistics import Series, drift

_FELL = 0.03
"""A clock or series that moves by less is ordinary."""


@dataclass(frozen=True)
class Reading:
    """The SM clock under load, and what holds it back, such as "power limit"."""

    mhz: float
    reasons: tuple[str, ...] = ()


def throttled(readings: Sequence[Reading], series: Series) -> str:
    """What shows a slow-down, with its evidence: the device's own clock and reasons, or else the timing series."""
    if readings:
        first, lowest = readings[0].mhz, min(reading.mhz for reading in readings)
        reasons = list(dict.fromkeys(reason for reading in readings for reason in reading.reasons))
        why = f", held back by {' and '.join(reasons)}" if reasons else ""
        if lowest < first * (1 - _FELL):
            return f"SM clock fell from {first:,.0f} to {lowest:,.0f} MHz{why} (NVML)"
        return f"SM clock at {lowest:,.0f} MHz{why} (NVML)" if reasons else ""
    moved = drift(series)
    if moved > _FELL:
        return f"the last quarter of the samples is {moved:.1%} slower than the first (timing series; no clock to read)"
    return ""
