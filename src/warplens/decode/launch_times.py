"""When each launch began and ended, and how long its warps lived."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.decode.track_windows import TrackWindows


@dataclass(frozen=True)
class LaunchTimes:
    """The first warp's start and the last warp's exit, and the sum of the warps' lifetimes; zero without a warp."""

    tracks: int
    begin_ns: int = 0
    end_ns: int = 0
    busy_cycles: int = 0
    busy_ns: int = 0


def launch_times(
    windows: TrackWindows, begin: npt.NDArray[np.float64], end: npt.NDArray[np.float64]
) -> list[LaunchTimes]:
    """The times of each launch; `begin` and `end` are the times of its tracks in ns."""
    tracks = np.diff(windows.bounds)
    used = np.flatnonzero(tracks)
    found = [LaunchTimes(0)] * len(tracks)
    if not len(used):
        return found
    first = windows.bounds[used]
    columns = (
        used,
        tracks[used],
        np.minimum.reduceat(begin, first).astype(np.int64),
        np.maximum.reduceat(end, first).astype(np.int64),
        np.add.reduceat(windows.exit_clock - windows.start_clock, first),
        np.add.reduceat(end - begin, first).astype(np.int64),
    )
    for launch, *values in zip(*(column.tolist() for column in columns), strict=True):
        found[launch] = LaunchTimes(*values)
    return found
