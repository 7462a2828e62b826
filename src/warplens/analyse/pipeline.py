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


def pipeline_depth(lives: Lifetimes, kernel: str, kinds: list[Purpose]) -> Pipeline | None:
    """Measure the pipeline depth; None unless a memory and a work region repeat equally often in a block."""
    rows = lives.spans_of(kernel)
    region = lives.region[rows]
    count = np.bincount(region, minlength=len(lives.regions))
    load = _most(count, [kind is Purpose.MEMORY for kind in kinds])
    work = _most(count, [kind is Purpose.WORK for kind in kinds])
    if load is None or work is None:
        return None
    loads, works = np.flatnonzero(region == load), np.flatnonzero(region == work)
    if not isinstance(rows, slice):
        loads, works = rows[loads], rows[works]
    per_load, rounds_of_load = _warps_running(lives, loads)
    per_work, rounds_of_work = _warps_running(lives, works)
    fits = (rounds_of_load >= 4) & (np.abs(rounds_of_load - rounds_of_work) <= 0.25 * rounds_of_load)
    if not fits.any():
        return None
    fitting = fits[lives.block]
    loads, works = loads[fitting[lives.of_row[loads]]], works[fitting[lives.of_row[works]]]
    begin = lives.blocks.begin
    width = int((lives.blocks.end - begin).max()) + 2

    def on_axis(chosen: Int) -> Int:
        shift = lives.block * width - begin[lives.block]
        return np.sort(lives.start[chosen] + shift[lives.of_row[chosen]])

    load_at, work_at = on_axis(loads), on_axis(works)
    of = work_at // width
    before = np.searchsorted(load_at, work_at, side="right") - np.searchsorted(load_at, of * width)
    done = np.arange(len(work_at)) - np.searchsorted(work_at, of * width)
    ahead = before / per_load[of] - np.floor(done / per_work[of])
    return Pipeline(lives.regions[load], lives.regions[work], float(ahead.mean()), float(np.percentile(ahead, 99)))


def _most(count: Int, chosen: list[bool]) -> int | None:
    counted = np.where(chosen, count, 0)
    at = int(counted.argmax())
    return at if counted[at] > 0 else None


def _warps_running(lives: Lifetimes, rows: Int) -> tuple[Int, Float]:
    """How many warps of each block run the region, and how often each of them does."""
    times = np.bincount(lives.of_row[rows], minlength=len(lives))
    blocks = len(lives.blocks)
    warps = np.bincount(lives.block[times > 0], minlength=blocks)
    return warps, np.bincount(lives.block, weights=times, minlength=blocks) / np.maximum(warps, 1)
