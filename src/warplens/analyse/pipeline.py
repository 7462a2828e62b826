"""The effective depth of a load/work pipeline: how many loads were in flight when each work region began."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.analyse.lifetimes import Float, Int, Lifetimes
from warplens.analyse.region_purpose import Purpose


@dataclass(frozen=True)
class Pipeline:
    """Loads (region `load`) that have begun but have not been consumed (by region `work`) when work begins, per warp.

    1 means no pipeline: each load is followed by its work. `mean` and `most` (p99) are over all begins of work.
    """

    load: str
    work: str
    mean: float
    most: float


def pipeline_depth(lives: Lifetimes, kinds: list[Purpose]) -> Pipeline | None:
    """Measure the pipeline depth in one variant; None unless a memory and a work region repeat equally often in a
    block."""
    count = np.bincount(lives.cells.region, lives.cells.count, len(lives.regions)).astype(np.float64)
    load, work = _most(count, kinds, Purpose.MEMORY), _most(count, kinds, Purpose.WORK)
    if load is None or work is None:
        return None
    per_load, rounds_of_load = _warps_running(lives, load)
    per_work, rounds_of_work = _warps_running(lives, work)
    fits = (rounds_of_load >= 4) & (np.abs(rounds_of_load - rounds_of_work) <= 0.25 * rounds_of_load)
    if not fits.any():
        return None
    begin, mine = lives.blocks.begin, fits[lives.block]
    width = int((lives.blocks.end - begin).max()) + 2
    shift = lives.block * width - begin[lives.block]
    parts = []
    for batch in lives.track_batches(np.where(mine, lives.block, -1)):
        tracks = batch[mine[batch]]
        rows = lives.rows_of(tracks)
        region, at = lives.region[rows], lives.start[rows] + np.repeat(shift[tracks], lives.counts[tracks])
        spans = lives.is_span[rows]
        load_at, work_at = np.sort(at[spans & (region == load)]), np.sort(at[spans & (region == work)])
        of = work_at // width
        before = np.searchsorted(load_at, work_at, side="right") - np.searchsorted(load_at, of * width)
        done = np.arange(len(work_at)) - np.searchsorted(work_at, of * width)
        parts.append(before / per_load[of] - np.floor(done / per_work[of]))
    ahead = np.concatenate(parts)
    return Pipeline(lives.regions[load], lives.regions[work], float(ahead.mean()), float(np.percentile(ahead, 99)))


def _most(count: Float, kinds: list[Purpose], wanted: Purpose) -> int | None:
    """The most frequent region of a purpose."""
    fits = [code for code in np.flatnonzero(count > 0).tolist() if kinds[code] is wanted]
    return max(fits, key=count.__getitem__, default=None)


def _warps_running(lives: Lifetimes, region: int) -> tuple[Int, Float]:
    """How many warps of each block run the region, and how often each of them does."""
    here = lives.cells.region == region
    times = np.bincount(lives.cells.track[here], lives.cells.count[here], len(lives))
    blocks = len(lives.blocks)
    warps = np.bincount(lives.block[times > 0], minlength=blocks)
    return warps, np.bincount(lives.block, weights=times, minlength=blocks) / np.maximum(warps, 1)
