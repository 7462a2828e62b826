"""The cost of marks as `warplens.cuda.calibrate` measured it in this process."""

from __future__ import annotations

calibrations: dict[tuple[str, str, str], dict[str, float]] = {}
"""Cycles by device, by store policy (DIRECT for marks that the compiler sees) and by what a full track does."""
