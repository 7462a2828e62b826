"""How much of a launch its records take: an estimate from the headers of its tracks and the cost of a record."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

ALONE, CROWDED = 20.0, 3.0
"""Cycles of a record for its warp where nothing hides them, and for its SM however many warps share it, on an H200."""
MOST = 0.5
"""The share of a launch's time that its records are believed to have taken; past it, some of them were hidden."""


def estimate_slowdown(headers: npt.NDArray[np.void], alone: float = ALONE, crowded: float = CROWDED) -> float | None:
    """How much slower the records made a launch; None if no warp exited."""
    lasted, lived, records = by_sm(headers[headers["state"] != 0])
    if not lasted.sum():
        return None
    # Of the warps that live on an SM at once, each waits for its own record, and all of them for the SM's stores.
    warps = np.maximum(lived / np.maximum(lasted, 1), 1)
    spent = np.minimum(records * np.maximum(alone / warps, crowded), MOST * lasted).sum()
    return float(lasted.sum() / (lasted.sum() - spent))


def by_sm(tracks: npt.NDArray[np.void]) -> tuple[npt.NDArray[np.float64], ...]:
    """Of each SM: cycles from the first start to the last exit, cycles that its warps lived, records they wrote."""
    sms, at = np.unique(tracks["sm"], return_inverse=True)
    start, end = tracks["start_clock"].astype(np.int64), tracks["exit_clock"].astype(np.int64)
    first, last = np.full(len(sms), np.iinfo(np.int64).max), np.zeros(len(sms), np.int64)
    np.minimum.at(first, at, start)
    np.maximum.at(last, at, end)
    lived, records = np.bincount(at, end - start, len(sms)), np.bincount(at, tracks["written"], len(sms))
    return (last - first).astype(np.float64), lived.astype(np.float64), records.astype(np.float64)
