"""The lives of warps that left no record, as rows of the trace.

Every track's header says when its warp started and exited, and on which SM. In a launch with automatic marks, or with
none at all, a warp that left no record gets one span of the reserved region LIFE over its whole life. Every analysis
starts from spans, so waves, tails and imbalance need nothing else to see these warps. Authors of hand-written marks
choose which warps they look at, so their other warps get no row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.decode.decoded_rows import SPAN, DecodedRows, RowPlan
from warplens.decode.track_windows import TrackWindows
from warplens.record.capture import AUTOMATIC, Launch

Array = npt.NDArray[Any]
Bool = npt.NDArray[np.bool_]


def silent_tracks(launches: Sequence[Launch], windows: TrackWindows, plan: RowPlan) -> Bool:
    """The tracks that get a row for the life of their warp: it ran from start to exit and wrote nothing."""
    asked = np.array([bool(launch.extra.get(AUTOMATIC) or not launch.regions) for launch in launches], bool)
    silent: Bool = (np.diff(plan.row_start) == 0) & (windows.written == 0) & windows.exited & asked[windows.launch]
    return silent


def add_lives(
    windows: TrackWindows, plan: RowPlan, rows: DecodedRows, silent: Bool, code: int
) -> tuple[RowPlan, DecodedRows]:
    """Return the plan and the rows with one span of region `code` for each silent track, in the order of tracks."""
    added = np.append(0, np.cumsum(silent))
    new_start = plan.row_start + added
    kept = np.arange(len(rows.start)) + np.repeat(added[:-1], np.diff(plan.row_start))
    lives = new_start[:-1][silent]
    start, end = windows.start_clock[silent], windows.exit_clock[silent]
    total = len(rows.start) + len(lives)

    def spread(values: Array, life: npt.ArrayLike) -> Array:
        out = np.empty(total, values.dtype)
        out[kept], out[lives] = values, life
        return out

    of_lives: dict[str, npt.ArrayLike] = {
        "region": code,
        "kind": SPAN,
        "depth": 0,
        "start": start,
        "duration": end - start,
        "open": 0,
    }
    if len(rows.value):
        of_lives |= {"value": 0, "has_value": 0}
    parent = np.where(rows.parent >= 0, kept[rows.parent] if len(kept) else 0, -1).astype(rows.parent.dtype)
    columns = {name: spread(getattr(rows, name), life) for name, life in of_lives.items()}
    return replace(plan, row_start=new_start), replace(rows, **columns, parent=spread(parent, -1))
