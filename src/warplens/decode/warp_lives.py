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


def silent_tracks(launches: Sequence[Launch], views: Sequence[TrackWindows], plans: Sequence[RowPlan]) -> Bool:
    """The tracks that get a row for the life of their warp: it ran from start to exit and wrote nothing."""
    found = []
    for launch, view, plan in zip(launches, views, plans, strict=True):
        silent = (np.diff(plan.row_start) == 0) & (view.written == 0) & view.exited
        found.append(silent & bool(launch.extra.get(AUTOMATIC) or not launch.regions))
    return np.concatenate(found) if found else np.empty(0, bool)


def add_lives(
    views: Sequence[TrackWindows], plans: Sequence[RowPlan], rows: DecodedRows, silent: Bool, code: int
) -> tuple[list[RowPlan], DecodedRows]:
    """Return the plans and the rows with one span of region `code` for each silent track, in the order of tracks."""
    row_start = np.append(np.concatenate([plan.row_start[:-1] for plan in plans]), plans[-1].row_start[-1])
    added = np.append(0, np.cumsum(silent))
    new_start = row_start + added
    kept = np.arange(len(rows.start)) + np.repeat(added[:-1], np.diff(row_start))
    lives = new_start[:-1][silent]
    start, end = (
        np.concatenate([getattr(view, f"{edge}_clock") for view in views])[silent] for edge in ("start", "exit")
    )
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
    ends = np.cumsum([0, *(len(view) for view in views)])
    new_plans = [
        replace(plan, row_start=new_start[first : last + 1])
        for plan, first, last in zip(plans, ends[:-1], ends[1:], strict=True)
    ]
    return new_plans, replace(rows, **columns, parent=spread(parent, -1))
