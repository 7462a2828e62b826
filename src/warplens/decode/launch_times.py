"""When each launch began and ended, and how long its warps lived."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from warplens.decode.launch_ranges import each_cache_sized
from warplens.decode.track_windows import TrackWindows

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class LaunchTimes:
    """The first warp's start and the last warp's exit, and the sum of the warps' lifetimes; zero without a warp."""

    tracks: int
    begin_ns: int = 0
    end_ns: int = 0
    busy_cycles: int = 0
    busy_ns: int = 0


def launch_times(windows: TrackWindows, times: Callable[[slice, Int64], Float64]) -> list[LaunchTimes]:
    """The times of each launch; `times` converts a clock of each track of a range to ns."""
    return [one for part in each_cache_sized(windows.bounds, partial(_of_some, windows, times)) for one in part]


def _of_some(
    windows: TrackWindows, times: Callable[[slice, Int64], Float64], begin: int, end: int
) -> list[LaunchTimes]:
    """Those of the launches from `begin` up to `end`."""
    bounds = windows.bounds[begin : end + 1]
    tracks, here = np.diff(bounds), slice(*bounds[[0, -1]].tolist())
    used = np.flatnonzero(tracks)
    found = [LaunchTimes(0)] * len(tracks)
    if not len(used):
        return found
    first, edges = bounds[used] - here.start, (windows.start_clock[here], windows.exit_clock[here])
    started, exited = (times(here, clock) for clock in edges)
    columns = (
        used,
        tracks[used],
        np.minimum.reduceat(started, first).astype(np.int64),
        np.maximum.reduceat(exited, first).astype(np.int64),
        np.add.reduceat(edges[1] - edges[0], first),
        np.add.reduceat(exited - started, first).astype(np.int64),
    )
    for launch, *values in zip(*(column.tolist() for column in columns), strict=True):
        found[launch] = LaunchTimes(*values)
    return found
