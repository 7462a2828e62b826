"""How often each span's region was executed, and for how long: one execution per span, or many in mode="aggregate"."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.record.aggregate_rows import BUCKETS, bucket_starts
from warplens.trace.arrays import to_numpy
from warplens.trace.model import Trace

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
NO_TIMELINE = "a trace in mode='aggregate' keeps statistics and has no timeline; record it with mode='trace'"


def counts(trace: Trace) -> Int:
    """The number of executions that each row stands for."""
    return np.asarray(trace.numpy("count"), np.int64) if trace.aggregated else np.ones(len(trace), np.int64)


class Executions:
    """The executions behind the spans of a trace in mode="aggregate"."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self.count = counts(trace)
        self._cycles, self._ns = trace.numpy("dur_cycles"), trace.numpy("dur_ns")
        self._least, self._most = trace.numpy("min_cycles"), trace.numpy("max_cycles")

    @cached_property
    def _histograms(self) -> tuple[Int, Int, Int]:
        """Where the buckets of each row begin, the buckets, and the executions in each."""
        buckets, amounts = self._trace.column("buckets"), self._trace.column("bucket_counts")
        offsets = np.asarray(to_numpy(buckets.offsets), np.int64)
        return offsets - offsets[0], np.asarray(to_numpy(buckets.flatten()), np.int64), to_numpy(amounts.flatten())

    def histogram(self, rows: Int) -> Int:
        """The histogram of all executions behind some rows."""
        offsets, buckets, amounts = self._histograms
        begin, many = offsets[rows], offsets[rows + 1] - offsets[rows]
        at = np.repeat(begin - (np.cumsum(many) - many), many) + np.arange(many.sum())
        return np.bincount(buckets[at], amounts[at], BUCKETS).astype(np.int64)

    def summary(self, rows: Int, percentiles: tuple[int, ...]) -> tuple[dict[str, Any], dict[str, Any]]:
        """The statistics of all executions behind some rows, in cycles and in ns."""
        count, total, total_ns = (int(values[rows].sum()) for values in (self.count, self._cycles, self._ns))
        least, most = int(self._least[rows].min()), int(self._most[rows].max())
        histogram, mean = self.histogram(rows), total / count
        middles = _middles(least, most)
        std = float(np.sqrt((histogram * (middles - mean) ** 2).sum() / count))
        cycles = {"total": total, "mean": mean, "std": std, "min": least, "max": most}
        cycles |= {f"p{share}": percentile(histogram, share / 100, least, most) for share in percentiles}
        rate = total_ns / total if total else 0.0
        ns = {name: value * rate for name, value in cycles.items()} | {"total": total_ns, "mean": total_ns / count}
        return cycles, ns | {name: round(ns[name]) for name in ("min", "max")}


def percentile(histogram: Int, share: float, least: int, most: int) -> float:
    """The duration below which a share of the executions lies, interpolated inside its bucket."""
    total = int(histogram.sum())
    if not total:
        return float(least)
    upto, (low, high) = np.cumsum(histogram), _bounds(least, most)

    def duration(rank: int) -> float:
        """The duration of this rank; the shortest and the longest are known."""
        if rank in (0, total - 1):
            return float(most if rank else least)
        bucket = int(np.searchsorted(upto, rank, side="right"))
        inside = (rank - (upto[bucket] - histogram[bucket]) + 0.5) / histogram[bucket]
        return float(low[bucket] + inside * (high[bucket] - low[bucket]))

    wanted = share * (total - 1)
    below = math.floor(wanted)
    part = wanted - below
    return duration(below) * (1 - part) + duration(math.ceil(wanted)) * part


def _bounds(least: int, most: int) -> tuple[Float, Float]:
    """The least and the longest duration of each bucket, none beyond those that were seen."""
    starts = bucket_starts()
    low = np.ceil(starts[:-1])
    low[0] = 0
    high = np.ceil(starts[1:]) - 1
    high[-1] = max(most, high[-1])
    return np.clip(low, least, most), np.clip(np.maximum(high, low), least, most)


def _middles(least: int, most: int) -> Float:
    low, high = _bounds(least, most)
    return np.asarray((low + high) / 2)
