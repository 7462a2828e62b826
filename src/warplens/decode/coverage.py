"""The share of each warp's lifetime that is inside a region."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import numpy.typing as npt

from warplens.decode.decoded_rows import DecodedRows, RowPlan
from warplens.decode.native_decoder import NativeDecoder
from warplens.decode.numpy_decoder import NumpyDecoder
from warplens.decode.track_windows import TrackWindows

_AT_ONCE = 1 << 16
"""Warps whose shares one thread puts in order at once."""
_MOST_THREADS = 16


def region_coverage(
    windows: TrackWindows, plan: RowPlan, rows: DecodedRows, decoder: NativeDecoder | NumpyDecoder
) -> list[dict[str, float]]:
    """For each launch, the minimum, 5th percentile and median over its warps.

    Warps that lost records are excluded, because their regions are not known; empty if no warp remains, and if no
    warp of the launch was in a region.
    """
    launches = len(windows.bounds) - 1
    out: list[dict[str, float]] = [{} for _ in range(launches)]
    lived = windows.exit_clock - windows.start_clock
    np.maximum(lived, 0, out=lived)
    rows_of = np.diff(plan.row_start[windows.bounds])
    alive = (lived > 0) & (windows.written <= windows.slots) & (rows_of > 0)[windows.launch]
    if not alive.any():
        return out
    inside, count = decoder.inside(plan, windows.start_clock, lived, rows), np.diff(windows.bounds)
    if not alive.all():
        inside, lived, count = inside[alive], lived[alive], np.bincount(windows.launch[alive], minlength=launches)
    share, begin = inside / lived, np.cumsum(count) - count
    parts = []
    for size in np.unique(count[count > 0]).tolist():  # launches with equally many warps in one call
        which, step = np.flatnonzero(count == size), -(-_AT_ONCE // size)
        parts += [(which[first : first + step], size) for first in range(0, len(which), step)]

    def summed_up(part: tuple[npt.NDArray[np.int64], int]) -> list[list[float]]:
        which, size = part
        low, end = int(begin[which[0]]), int(begin[which[-1]]) + size
        together = end - low == len(which) * size
        shares = share[low:end].reshape(-1, size) if together else share[begin[which][:, None] + np.arange(size)]
        shown: list[list[float]] = np.percentile(shares, (0, 5, 50), axis=1).tolist()
        return shown

    if len(parts) == 1:
        found = [summed_up(parts[0])]
    else:
        with ThreadPoolExecutor(min(len(parts), os.cpu_count() or 1, _MOST_THREADS)) as pool:
            found = list(pool.map(summed_up, parts))
    for (which, _), summary in zip(parts, found, strict=True):
        for launch, least, low, median in zip(which.tolist(), *summary, strict=True):
            out[launch] = {"least": least, "p5": low, "median": median}
    return out
