"""The names of the analyses, without importing them: the registry has the same, in the same order."""

from __future__ import annotations

ANALYSIS_NAMES = (
    "imbalance",
    "waves",
    "overlap",
    "waits",
    "roles",
    "path",
    "sensitivity",
    "ramp",
    "modes",
    "clock",
    "occupancy",
    "lateness",
    "skew",
    "rank-path",
)
