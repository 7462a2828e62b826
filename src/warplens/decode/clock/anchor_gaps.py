"""The longest time of a launch without an anchor, and how far the clock may have gone astray in it.

Residuals say how well the fit explains the anchors, not what happened between them. In a kernel whose warps all live
for seconds there may be none but at its start and its end, and a clock that changed meanwhile leaves no trace. But no
clock runs faster than its maximum: one that averaged r of at most R cannot be off by more than 1 - r / R of the gap.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

SHORT_NS = 1e6
"""A clock that changes within a gap this short misplaces records by microseconds at most, as it changes by percents."""
_UNKNOWN_SPREAD = 0.15
"""The assumed 1 - r / R where the maximum clock is unknown."""


def longest_gap(ns: npt.NDArray[np.int64]) -> float:
    """The longest time between two neighbouring anchors of a launch."""
    return float(np.diff(np.sort(ns)).max(initial=0))


def gap_error(gap_ns: float, mhz: float, fastest_mhz: float) -> float:
    """How far a moment in the gap may be from where a clock of constant rate `mhz` has it; 0 in a short gap."""
    if gap_ns < SHORT_NS:
        return 0.0
    return gap_ns * (max(1 - mhz / fastest_mhz, 0.0) if fastest_mhz > 0 else _UNKNOWN_SPREAD)
