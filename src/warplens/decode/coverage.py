"""The share of each warp's lifetime that is inside a region."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from warplens.decode.decoded_rows import DecodedRows, RowPlan
from warplens.decode.launch_ranges import each_cache_sized
from warplens.decode.native_decoder import NativeDecoder
from warplens.decode.numpy_decoder import NumpyDecoder
from warplens.decode.track_windows import TrackWindows


def region_coverage(
    windows: TrackWindows, plan: RowPlan, rows: DecodedRows, decoder: NativeDecoder | NumpyDecoder
) -> list[dict[str, float]]:
    """For each launch, the minimum, 5th percentile and median over its warps.

    Warps that lost records are excluded, because their regions are not known; empty if no warp remains, and if no
    warp of the launch was in a region.
    """

    def of_some(begin: int, end: int) -> list[dict[str, float]]:
        bounds = windows.bounds[begin : end + 1]
        tracks = slice(*bounds[[0, -1]].tolist())
        own = replace(windows.part(tracks), bounds=bounds - tracks.start)
        row_start = plan.row_start[tracks.start : tracks.stop + 1]
        return _coverage(own, replace(plan, row_start=row_start), rows, decoder)

    return [one for part in each_cache_sized(windows.bounds, of_some) for one in part]


def _coverage(
    windows: TrackWindows, plan: RowPlan, rows: DecodedRows, decoder: NativeDecoder | NumpyDecoder
) -> list[dict[str, float]]:
    launches = len(windows.bounds) - 1
    out: list[dict[str, float]] = [{} for _ in range(launches)]
    lived = np.maximum(windows.exit_clock - windows.start_clock, 0)
    rows_of = np.diff(plan.row_start[windows.bounds])
    alive = (lived > 0) & (windows.written <= windows.slots) & (rows_of > 0)[windows.launch]
    if not alive.any():
        return out
    inside, count = decoder.inside(plan, windows.start_clock, lived, rows), np.diff(windows.bounds)
    if not alive.all():
        inside, lived, count = inside[alive], lived[alive], np.bincount(windows.launch[alive], minlength=launches)
    share, begin = inside / lived, np.cumsum(count) - count
    for size in np.unique(count[count > 0]).tolist():  # launches with equally many warps in one call
        which = np.flatnonzero(count == size)
        shares = share[begin[which][:, None] + np.arange(size)]
        summary = np.percentile(shares, (0, 5, 50), axis=1).tolist()
        for launch, least, low, median in zip(which.tolist(), *summary, strict=True):
            out[launch] = {"least": least, "p5": low, "median": median}
    return out
