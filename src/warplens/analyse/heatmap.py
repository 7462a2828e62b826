"""Matrices of where time goes: SMs, warps or blocks by time, and by region."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.analyse.executions import counts
from warplens.analyse.timeline import TimelineRows, rows_of, strips
from warplens.trace.model import Trace

Float = npt.NDArray[np.float64]
Int = npt.NDArray[np.int64]
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
    trace: Trace, by: str = "sm", bins: int = 240, time: tuple[int, int] | None = None, most: int = 12
) -> OverTime:
    """Compute activity over time for the `most` regions with the most time; the others are summed as one."""
    found = strips(trace, by, bins, time)
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
    total, count = _sums(trace, rows.of_track, len(rows.labels))
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return ByRegion(rows, regions, mean, total)


def _sums(trace: Trace, row_of_track: Int, rows: int) -> tuple[Float, Float]:
    """The cycles and the number of closed spans of each row and region."""
    many, first = len(trace.regions), trace.runs("track").starts
    total, count = np.zeros((rows, many)), np.zeros((rows, many))
    closed, amount = trace.of_kind("span") & ~trace.numpy("open"), counts(trace) if trace.aggregated else None
    for begin, end, (cycles, region) in trace.blocks("dur_cycles", "region"):
        tracks = slice(*np.searchsorted(first, (begin, end)))
        row = np.repeat(row_of_track[tracks], np.diff(np.append(first[tracks], end)))
        here = closed[begin:end]
        key, weight = row * many + region, here if amount is None else amount[begin:end] * here
        total.reshape(-1)[:] += np.bincount(key, cycles * here, total.size)
        count.reshape(-1)[:] += np.bincount(key, weight, total.size)
    return total, count


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
    block, regions = np.asarray(trace.at("block", trace.runs("track").starts), np.int64), trace.regions
    blocks = int(block.max(initial=-1)) + 1
    each = max(1, -(-blocks // most))
    total, count = _sums(trace, block // each, -(-blocks // each))
    mean = np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)
    return ByBlock(blocks, each, regions, mean)
