"""Matrices of where time goes: SMs, warps or blocks by time, and by region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.analyse.executions import counts
from warplens.analyse.timeline import Segments, TimelineRows, innermost, rows_of, strips
from warplens.trace.model import Trace

Float = npt.NDArray[np.float64]
OTHER = "other regions"


@dataclass(frozen=True)
class OverTime:
    """Activity over time. `warps` is [region, row, bin]: the mean number of warps with that region innermost."""

    rows: TimelineRows
    regions: Sequence[str]
    begin: int
    end: int
    warps: Float


@dataclass(frozen=True)
class ByRegion:
    """Cycles per row and region, as [row, region]: the mean of a span, and the sum of all spans."""

    rows: TimelineRows
    regions: Sequence[str]
    mean: Float
    total: Float


def over_time(
    trace: Trace,
    by: str = "sm",
    bins: int = 240,
    time: tuple[int, int] | None = None,
    most: int = 12,
    segments: Segments | None = None,
) -> OverTime:
    """Compute activity over time for the `most` regions with the most time; the others are summed as one."""
    found = strips(trace, by, bins, time, segments or innermost(trace))
    warps = found.time.transpose(1, 0, 2) / found.bin_ns
    order = np.argsort(-warps.sum(axis=(1, 2)), kind="stable")
    order = order[warps[order].any(axis=(1, 2))] if len(order) else order
    shown, rest = sorted(order[:most].tolist()), order[most:]
    regions = [found.regions[at] for at in shown]
    made = warps[shown]
    if len(rest):
        made = np.concatenate((made, warps[rest].sum(axis=0, keepdims=True)))
        regions.append(OTHER)
    return OverTime(found.rows, regions, found.begin, found.end, made)


def by_region(trace: Trace, by: str = "warp_index") -> ByRegion:
    """Compute the durations of closed spans per row and region."""
    rows, regions = rows_of(trace, by), trace.regions
    at = np.flatnonzero(trace.of_kind("span") & ~trace.numpy("open"))
    key = rows.of_span[at] * len(regions) + trace.codes("region")[0][at]
    size, shape = len(rows.labels) * len(regions), (len(rows.labels), len(regions))
    total = np.bincount(key, trace.numpy("dur_cycles")[at], size).astype(np.float64).reshape(shape)
    count = np.bincount(key, counts(trace)[at], size).reshape(shape)
    mean = np.divide(total, count, out=np.full(shape, np.nan), where=count > 0)
    return ByRegion(rows, regions, mean, total)


@dataclass(frozen=True)
class ByBlock:
    """The mean cycles of each region in each block, [cell, region], NaN where a block never entered it.

    `each` consecutive blocks share a cell; it is more than one only for grids too large to show each block.
    """

    blocks: int
    each: int
    regions: Sequence[str]
    mean: Float


def by_block(trace: Trace, most: int = 16384) -> ByBlock:
    """Compute the mean durations of each block, in order of block number."""
    block, regions = trace.numpy("block").astype(np.int64), trace.regions
    blocks = int(block.max(initial=-1)) + 1
    each = max(1, -(-blocks // most))
    cells = -(-blocks // each)
    at = np.flatnonzero(trace.of_kind("span") & ~trace.numpy("open"))
    key = block[at] // each * len(regions) + trace.codes("region")[0][at]
    total = np.bincount(key, trace.numpy("dur_cycles")[at], cells * len(regions)).astype(np.float64)
    count = np.bincount(key, counts(trace)[at], cells * len(regions))
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return ByBlock(blocks, each, regions, mean.reshape(cells, len(regions)))
