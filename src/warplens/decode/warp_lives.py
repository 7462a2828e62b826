"""The lives of warps that left no record, as rows of the trace.

Every track's header says when its warp started and exited, and on which SM. In a launch with automatic marks, or with
none at all, a warp that left no record gets one span of the reserved region LIFE over its whole life. Every analysis
starts from spans, so waves, tails and imbalance need nothing else to see these warps. Authors of hand-written marks
choose which warps they look at, so their other warps get no row.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from warplens.decode.decoded_rows import DecodedRows, RowPlan
from warplens.decode.track_windows import TrackWindows
from warplens.record.capture import AUTOMATIC, Launch

Bool = npt.NDArray[np.bool_]


def silent_tracks(launches: Sequence[Launch], windows: TrackWindows, plan: RowPlan) -> Bool:
    """The tracks that get a row for the life of their warp: it ran from start to exit and wrote nothing."""
    asked = np.array([bool(launch.extra.get(AUTOMATIC) or not launch.regions) for launch in launches], bool)
    if not asked.any():
        return np.zeros(len(windows), bool)
    silent: Bool = (np.diff(plan.row_start) == 0) & (windows.written == 0) & windows.exited & asked[windows.launch]
    return silent


def add_lives(
    windows: TrackWindows, plan: RowPlan, rows: DecodedRows, silent: Bool, code: int
) -> tuple[RowPlan, DecodedRows]:
    """Return the plan and the rows with one span of region `code` for each silent track, in the order of tracks."""
    start = windows.start_clock[silent]
    spans: dict[str, npt.ArrayLike] = {"region": code, "start": start, "duration": windows.exit_clock[silent] - start}
    rows, plan = rows.with_spans(plan, plan.row_start[:-1][silent], np.flatnonzero(silent), spans)
    return plan, rows
