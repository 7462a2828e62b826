"""Confidence intervals by bootstrap over whole blocks or launches, since the spans of one block are correlated."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from math import pi, sqrt, tan

import numpy as np

from warplens.analyse.lifetimes import Array, Float, Int, Lifetimes
from warplens.analyse.region_durations import UNITS, DurationPart
from warplens.analyse.statistics import RegionStatistics

MAX_CLUSTERS = 256
MIN_LAUNCHES = 5
_BINS = 128
_REPEATS = 1000
_MAX_SPANS = 200_000
_QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99}
METRICS = ("mean", *_QUANTILES)
TRIMMED = "trimmed"
_CAP = 0.98
_LEAST_CHANGE = -1.0
"""No duration is negative, so nothing becomes shorter by more than all of it."""


@dataclass(frozen=True)
class Interval:
    """A relative change with its confidence interval, which is infinite without repetitions."""

    change: float
    low: float
    high: float


class Sample:
    """The spans of one region, grouped in clusters: launches where there are several, blocks otherwise.

    `cluster` is that of each track of the trace.
    """

    def __init__(self, row: RegionStatistics, parts: Sequence[DurationPart], cluster: Int, clusters: int) -> None:
        self.row, self.clusters = row, clusters
        self._parts = parts
        self._cluster = [cluster[part.tracks] for part in parts]
        """Of each track of each part."""
        self.count = self._by_cluster(part.counts for part in parts).astype(np.int64)
        self.present = int((self.count > 0).sum())
        self.step = max(int(self.count.sum()) // _MAX_SPANS, 1)
        self._totals: dict[tuple[str, float], Float] = {}

    def _by_cluster(self, of_tracks: Iterable[Array]) -> Float:
        """The sums over the tracks of each cluster."""
        sums = zip(self._cluster, of_tracks, strict=True)
        return np.asarray(sum(np.bincount(of, values, self.clusters) for of, values in sums), np.float64)

    @cached_property
    def _chosen(self) -> tuple[dict[str, Array], Int]:
        """Every n-th duration in each unit, and its cluster."""
        values: dict[str, list[Array]] = {unit: [] for unit in UNITS}
        clusters, before = [], 0
        for part, cluster in zip(self._parts, self._cluster, strict=True):
            ends = part.ends
            at = np.arange(-before % self.step, ends[-1], self.step)
            for unit, chosen in values.items():
                chosen.append(part.values[unit][at])
            clusters.append(cluster[np.searchsorted(ends, at, side="right")])
            before += int(ends[-1])
        return {unit: np.concatenate(chosen) for unit, chosen in values.items()}, np.concatenate(clusters)

    def subsample(self, unit: str) -> Array:
        """The durations, or every n-th of very many: enough to estimate their distribution."""
        return self._chosen[0][unit]

    def totals(self, unit: str, cap: float = np.inf) -> Float:
        """The sum of the durations of each cluster, each cut to `cap`."""
        if (unit, cap) not in self._totals:
            by_track = _sums if cap == np.inf else partial(_beyond, cap=cap)
            found = self._by_cluster(by_track(part, unit) for part in self._parts)
            self._totals[unit, cap] = found if cap == np.inf else self.totals(unit) - found
        return self._totals[unit, cap]

    def histogram(self, unit: str, edges: Float) -> Array:
        """How many durations of each cluster lie between edges, or every n-th of very many."""
        bins = len(edges) - 1
        at = np.clip(np.searchsorted(edges, self.subsample(unit), side="right") - 1, 0, bins - 1)
        key = self._chosen[1] * bins + at
        return np.bincount(key, minlength=self.clusters * bins).reshape(self.clusters, bins)

    def point(self, metric: str, unit: str, cap: float) -> float:
        """The value over all spans."""
        if metric == TRIMMED:
            return float(self.totals(unit, cap).sum() / self.count.sum())
        return float(self.row[metric if unit == "cycles" else f"{metric}_ns"])


def _sums(part: DurationPart, unit: str) -> Array:
    """The sum of the durations of each track."""
    values = part.values[unit]
    wide = np.float64 if values.dtype.kind == "f" else np.int64
    return np.asarray(np.add.reduceat(values, part.ends - part.counts, dtype=wide))


def _beyond(part: DurationPart, unit: str, cap: float) -> Float:
    """What the durations of each track are longer than `cap`, in all."""
    values = part.values[unit]
    longer = np.flatnonzero(values > cap)
    track = np.searchsorted(part.ends, longer, side="right")
    return np.bincount(track, values[longer] - cap, len(part.tracks)).astype(np.float64)


def clusters_of(lives: Lifetimes, kernel: str) -> tuple[Int, int]:
    """The cluster of each track of a kernel (-1 for other tracks) and how many there are.

    Launches are the right unit, since noise is shared within one. Fewer than five are too few, and blocks (in at most
    256 groups) are used instead.
    """
    launches = lives.kernels[kernel]
    mine = lives.tracks_of(kernel)
    if len(launches) >= MIN_LAUNCHES:
        number = np.searchsorted(launches, lives.launch)
        groups = min(len(launches), MAX_CLUSTERS)
    else:
        blocks = np.unique(lives.block[mine])
        number = np.searchsorted(blocks, lives.block)
        groups = min(len(blocks), MAX_CLUSTERS)
    return np.where(mine, number % max(groups, 1), -1), groups


def compare(before: Sample, after: Sample, confidence: float, seed: int = 0) -> dict[tuple[str, str], Interval]:
    """The relative change of each metric in each unit, with its interval.

    `trimmed` is the mean with the longest 2 % of the spans cut to the 98th percentile: with a few outliers, the plain
    mean is too uncertain to show a small change of all the others.
    """
    rng = np.random.default_rng(seed)
    drawn = [_weights(rng, one) for one in (before, after)]
    out = {}
    for unit in UNITS:
        both = np.concatenate([before.subsample(unit), after.subsample(unit)])
        edges, cap = _edges(both), float(np.quantile(both, _CAP))
        pairs = zip((before, after), drawn, strict=True)
        replicas = [_replicas(one, unit, weights, edges, cap) for one, weights in pairs]
        for metric in (*METRICS, TRIMMED):
            old, new = before.point(metric, unit, cap), after.point(metric, unit, cap)
            change = new / old - 1 if old else 0.0
            with np.errstate(divide="ignore", invalid="ignore"):
                spread = replicas[1][metric] / replicas[0][metric] - 1
            out[metric, unit] = _interval(change, spread, min(before.present, after.present), confidence)
    return out


def interval_of_means(before: Float, after: Float, confidence: float, seed: int = 0) -> Interval:
    """The relative change of the mean of independent numbers, such as launch durations."""
    change = float(after.mean() / before.mean() - 1) if before.mean() else 0.0
    rng = np.random.default_rng(seed)
    means = [rng.choice(one, (_REPEATS, len(one))).mean(axis=1) for one in (before, after)]
    return _interval(change, means[1] / np.maximum(means[0], 1e-9) - 1, min(len(before), len(after)), confidence)


def _weights(rng: np.random.Generator, sample: Sample) -> Float:
    """How often each cluster is drawn in each bootstrap replica."""
    n = sample.clusters
    drawn = rng.integers(0, n, (_REPEATS, n)) + n * np.arange(_REPEATS)[:, None]
    return np.bincount(drawn.ravel(), minlength=n * _REPEATS).reshape(_REPEATS, n).astype(np.float64)


def _edges(values: Array) -> Float:
    """Bin edges at quantiles of the data, so that bins hold about equally many spans."""
    edges = np.unique(np.quantile(values, np.linspace(0, 1, _BINS + 1)))
    return np.concatenate([[edges[0] - 0.5], edges + 0.5])


def _replicas(sample: Sample, unit: str, weights: Float, edges: Float, cap: float) -> dict[str, Float]:
    drawn_count = weights @ sample.count
    out = {}
    for name, total in (("mean", sample.totals(unit)), (TRIMMED, sample.totals(unit, cap))):
        with np.errstate(divide="ignore", invalid="ignore"):
            out[name] = np.asarray((weights @ total) / drawn_count)
    drawn = np.cumsum(weights @ sample.histogram(unit, edges), axis=1)
    for name, share in _QUANTILES.items():
        out[name] = _quantile(drawn, edges, share)
    return out


def _quantile(drawn: Float, edges: Float, share: float) -> Float:
    """The value at which each cumulative histogram reaches a share, interpolated linearly inside the bin."""
    want = share * drawn[:, -1]
    at = np.minimum((drawn < want[:, None]).sum(axis=1), drawn.shape[1] - 1)
    rows = np.arange(len(drawn))
    below = np.where(at > 0, drawn[rows, at - 1], 0.0)
    inside = np.maximum(drawn[rows, at] - below, 1e-12)
    return np.asarray(edges[at] + (edges[at + 1] - edges[at]) * (want - below) / inside)


def _interval(change: float, spread: Float, clusters: int, confidence: float) -> Interval:
    spread = spread[np.isfinite(spread)]
    if clusters < 2 or len(spread) < 10:
        return Interval(float(change), -np.inf, np.inf)
    low, high = np.quantile(spread, [(1 - confidence) / 2, (1 + confidence) / 2])
    wider = _small_sample_factor(clusters, confidence)
    ends = change - wider * max(change - low, 0.0), change + wider * max(high - change, 0.0)
    return Interval(float(change), max(float(ends[0]), _LEAST_CHANGE), float(ends[1]))


def _small_sample_factor(clusters: int, confidence: float) -> float:
    """How much too narrow a bootstrap over few clusters is: Student's t over the normal, and n over n - 1."""
    n = clusters - 1
    return student(confidence, n) / _normal(confidence) * sqrt(clusters / n)


def student(confidence: float, degrees: int) -> float:
    """Student's t for a two-sided interval; from three degrees of freedom on by its series expansion."""
    if degrees == 1:
        return tan(pi * confidence / 2)
    if degrees == 2:
        return confidence * sqrt(2 / (1 - confidence**2))
    z = _normal(confidence)
    third = (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * degrees**3)
    return z + (z**3 + z) / (4 * degrees) + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * degrees**2) + third


def _normal(confidence: float) -> float:
    from statistics import NormalDist

    return NormalDist().inv_cdf((1 + confidence) / 2)
