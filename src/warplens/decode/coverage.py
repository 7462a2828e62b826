"""The share of each warp's lifetime that is inside a region."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from warplens.decode.decoded_rows import DecodedRows, RowPlan
from warplens.decode.native_decoder import NativeDecoder
from warplens.decode.numpy_decoder import NumpyDecoder
from warplens.decode.track_windows import TrackWindows


def region_coverage(
    views: Sequence[TrackWindows], plans: Sequence[RowPlan], rows: DecodedRows, decoder: NativeDecoder | NumpyDecoder
) -> list[dict[str, float]]:
    """For each launch, the minimum, 5th percentile and median over its warps.

    Warps that lost records are excluded, because their regions are not known; empty if no warp remains, and if no
    warp of the launch was in a region.
    """
    out: list[dict[str, float]] = []
    for view, plan in zip(views, plans, strict=True):
        lived = np.maximum(view.exit_clock - view.start_clock, 0)
        alive = (lived > 0) & (view.written <= view.slots)
        if not alive.any() or plan.row_start[0] == plan.row_start[-1]:
            out.append({})
            continue
        share = decoder.inside(plan, view.start_clock, lived, rows)[alive] / lived[alive]
        least, low, median = np.percentile(share, (0, 5, 50)).tolist()
        out.append({"least": least, "p5": low, "median": median})
    return out
