"""How much of each warp's life its regions account for: what is left is code that no region is around."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from warplens.decode.rows import Plan, Rows
from warplens.decode.windows import Windows
from warplens.trace.schema import KINDS

Int64 = npt.NDArray[np.int64]


def coverage(views: Sequence[Windows], plans: Sequence[Plan], rows: Rows) -> list[dict[str, float]]:
    """Of each launch, the least share over its warps, the 5th percentile and the median. Warps that lost records do not
    count, since nobody knows what regions they were in; empty where no warp is left."""
    out: list[dict[str, float]] = []
    for view, plan in zip(views, plans, strict=True):
        lived = view.exit_clock - view.start_clock
        alive = (lived > 0) & (view.written <= view.slots)
        if not alive.any():
            out.append({})
            continue
        share = _inside(view, plan, rows, lived)[alive] / lived[alive]
        least, low, median = np.percentile(share, (0, 5, 50)).tolist()
        out.append({"least": least, "p5": low, "median": median})
    return out


def _inside(view: Windows, plan: Plan, rows: Rows, lived: Int64) -> npt.NDArray[np.float64]:
    """Cycles of each track that lie in at least one region: asynchronous spans may overlap."""
    first, last = int(plan.row_start[0]), int(plan.row_start[-1])
    outer = (rows.parent[first:last] < 0) & (rows.kind[first:last] == KINDS.index("span"))
    at = np.flatnonzero(outer) + first
    track = np.searchsorted(plan.row_start, at, side="right") - 1
    begin = np.clip(rows.start[at] - view.start_clock[track], 0, lived[track])
    end = np.clip(begin + rows.duration[at], 0, lived[track])
    # Tracks laid end to end, so that one running maximum tells where each one's earlier spans end.
    place = np.cumsum(lived) - lived
    begin, end = begin + place[track], end + place[track]
    before = np.concatenate([[0], np.maximum.accumulate(end)[:-1]]) if len(end) else end
    new = np.maximum(end - np.maximum(begin, before), 0)
    return np.bincount(track, new.astype(np.float64), minlength=len(lived)).astype(np.float64, copy=False)
