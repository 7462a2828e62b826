"""How the durations of a region's instances vary: two modes, slow first instances, drift, and outliers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, region_table
from warplens.analyse.kernel_lives import each_variant
from warplens.analyse.lifetimes import Array, Float, Int, Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.trace.model import Trace
from warplens.wording import integer, percent

_SAMPLE = 200_000
_BINS = 128
_MIN_INSTANCES = 40
_STEPS = 10


@dataclass(frozen=True)
class TwoModes:
    """Two clusters of durations in cycles: their centres, the share of instances in the slow one, and how much of the
    variance the split explains (1 for two points; 0.64 for one normal distribution). `within_warps` is how much of it
    is between instances of the same warp: 0 where a warp is slow throughout or fast throughout."""

    fast: float
    slow: float
    slow_share: float
    separation: float
    within_warps: float = 1.0


@dataclass(frozen=True)
class RegionShape:
    """One region of a kernel; durations in cycles.

    `first` is the median of each warp's first instance, `later` of the others, and `first_share` the excess of the
    first ones as a share of the region's time. `drift` is the relative change from the first to the last tenth of the
    launch, 0 where it may be chance. `outliers` counts instances beyond p50 + 10 (p95 - p50), and `outlier_share` is
    their excess over the median.
    """

    region: str
    count: int
    p50: float
    p95: float
    modes: TwoModes | None
    first: float
    later: float
    first_share: float
    drift: float
    outliers: int
    outlier_share: float
    worst: float


@dataclass(frozen=True)
class Shapes:
    """All regions of a kernel, longest total first."""

    regions: tuple[RegionShape, ...]

    def __getitem__(self, region: str) -> RegionShape:
        return next(one for one in self.regions if one.region == region)


def duration_shapes(trace: Trace) -> PerKernel[Shapes]:
    """Describe the durations of all regions of every kernel."""
    lives = Lifetimes.of(trace)
    first = _first_instances(lives)
    answers = {}
    for kernel, own in each_variant(lives):
        rows = own.spans_of(kernel, measured=True)
        region = lives.region[rows]
        order = np.argsort(region.astype(np.uint16 if len(lives.regions) < 1 << 16 else np.int32), kind="stable")
        count = np.bincount(region, minlength=len(lives.regions))
        codes = np.flatnonzero(count)
        starts = np.cumsum(count[codes]) - count[codes]
        if not isinstance(rows, slice):
            order = rows[order]
        shapes = [
            _shape(lives, lives.regions[code], part, first)
            for code, part in zip(codes.tolist(), np.split(order, starts[1:])[: len(codes)], strict=True)
        ]
        answers[kernel] = Shapes(tuple(sorted(shapes, key=lambda shape: -shape.count * shape.p50)))
    return PerKernel(answers)


def _first_instances(lives: Lifetimes) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    """The first instance of each region on each track."""
    rows = np.flatnonzero(lives.measured)
    key = lives.of_row[rows].astype(np.int64) * len(lives.regions) + lives.region[rows]
    at = np.zeros(int(key.max(initial=0)) + 1, np.int64)
    at[key[::-1]] = rows[::-1]
    first = np.zeros(len(lives.start), bool)
    first[at[key]] = True
    return first


def _shape(lives: Lifetimes, region: str, rows: Int, first: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> RegionShape:
    durations = lives.duration[rows]
    p50, p95 = (float(x) for x in np.percentile(durations, (50, 95)))
    far = durations > p50 + 10 * max(p95 - p50, 1.0)
    is_first = first[rows]
    later = durations[~is_first]
    usual = float(np.median(later)) if len(later) else 0.0
    total = max(float(durations.sum()), 1.0)
    step = max(len(durations) // _SAMPLE, 1)
    two = find_modes(durations[::step])
    return RegionShape(
        region=region,
        count=len(rows),
        p50=p50,
        p95=p95,
        modes=two and replace(two, within_warps=_within_warps(two, durations, lives.of_row[rows])),
        first=float(np.median(durations[is_first])),
        later=usual,
        first_share=max(float((durations[is_first] - usual).sum() / total), 0.0) if len(later) else 0.0,
        drift=_drift(lives, rows, durations),
        outliers=int(far.sum()),
        outlier_share=float((durations[far] - p50).sum() / total),
        worst=float(durations.max()),
    )


def median_cycles(lives: Lifetimes, label: str, region: str) -> float:
    """The median duration of one region of a kernel variant, without the rest of its shape; 0 if it has no span."""
    mine = _sample(lives, label, region)
    return float(np.median(lives.duration[mine])) if len(mine) else 0.0


def _sample(lives: Lifetimes, label: str, region: str) -> Int:
    """Rows of spans of one region of a kernel variant, evenly spaced where there are many."""
    rows = lives.spans_of(label, measured=True)
    chosen = np.flatnonzero(lives.region[rows] == lives.regions.index(region))
    chosen = chosen[:: max(len(chosen) // _SAMPLE, 1)]
    found: Int = chosen if isinstance(rows, slice) else rows[chosen]
    return found


def modes_of(lives: Lifetimes, label: str, region: str) -> TwoModes | None:
    """The two modes of one region of a kernel variant, without the rest of its shape."""
    mine = _sample(lives, label, region)
    two = find_modes(lives.duration[mine])
    return two and replace(two, within_warps=_within_warps(two, lives.duration[mine], lives.track_of(mine)))


def find_modes(durations: Int) -> TwoModes | None:
    """Find two modes: the best threshold separates the durations well, with a valley between the two peaks."""
    values = durations[durations > 0].astype(np.float64)
    if len(values) < _MIN_INSTANCES:
        return None
    low, high = np.percentile(values, (0.1, 99.9))
    if high < 1.3 * low:
        return None
    log = np.log(np.clip(values, low, high))
    count, edges = np.histogram(log, _BINS)
    centre = (edges[1:] + edges[:-1]) / 2
    below = np.cumsum(count)[:-1]
    above = len(log) - below
    weighted = np.cumsum(count * centre)
    mean_below = weighted[:-1] / np.maximum(below, 1)
    mean_above = (weighted[-1] - weighted[:-1]) / np.maximum(above, 1)
    between = below * above * (mean_above - mean_below) ** 2 / len(log) ** 2
    # Every threshold inside an empty valley is equally good; take the middle one.
    best = np.flatnonzero(between >= between.max() * (1 - 1e-9))
    cut = int(best[len(best) // 2])
    separation = float(between[cut] / max(float(log.var()), 1e-12))
    fast, slow = log[log <= edges[cut + 1]], log[log > edges[cut + 1]]
    if separation < 0.75 or min(len(fast), len(slow)) < 0.02 * len(log):
        return None
    middles = float(np.exp(np.median(fast))), float(np.exp(np.median(slow)))
    if middles[1] < 1.3 * middles[0] or not _valley(count, cut):
        return None
    return TwoModes(*middles, slow_share=len(slow) / len(log), separation=min(separation, 1.0))


def _within_warps(two: TwoModes, durations: Int, track: Array) -> float:
    """The share of the variance of "slow" that is between instances of the same warp."""
    slow = durations > np.sqrt(two.fast * two.slow)
    first = int(track.min())
    count = np.bincount(track - first)
    inside = np.bincount(track - first, weights=slow)[count > 0] / count[count > 0]
    overall = float(slow.mean())
    spread = overall * (1 - overall)
    return float(np.average(inside * (1 - inside), weights=count[count > 0]) / spread) if spread else 0.0


def _valley(count: Int, cut: int) -> bool:
    """Whether the bins between the two highest peaks fall well below the lower peak."""
    smooth = np.convolve(count, np.ones(5) / 5, "same")
    left, right = int(smooth[: cut + 1].argmax()), cut + 1 + int(smooth[cut + 1 :].argmax())
    return bool(smooth[left : right + 1].min() < 0.35 * min(smooth[left], smooth[right]))


def _drift(lives: Lifetimes, rows: Int, durations: Int) -> float:
    """The relative change from the first to the last tenth of the launches; 0 where the trend is within the scatter."""
    launch = lives.launch[lives.of_row[rows]]
    begin = lives.trace.numpy("start_ns")[rows] - lives.launch_begin[launch]
    step = np.clip(begin * _STEPS // lives.launch_ns[launch], 0, _STEPS - 1)
    count = np.bincount(step, minlength=_STEPS)
    if count.min() < 20:
        return 0.0
    mean: Float = np.bincount(step, weights=durations, minlength=_STEPS) / count
    x = np.arange(_STEPS) - (_STEPS - 1) / 2
    slope = float((x * mean).sum() / (x * x).sum())
    scatter = float(np.sqrt(((mean - mean.mean() - slope * x) ** 2).sum() / (_STEPS - 2) / (x * x).sum()))
    if abs(slope) < 6 * scatter:
        return 0.0
    return float(slope * (_STEPS - 1) / max(float(mean.mean()), 1e-9))


def modes_table(kernel: str, one: Shapes) -> AnswerTable:
    """The distribution of each region's durations."""
    return region_table(
        f"{kernel}: durations, in cycles",
        one.regions,
        ("count", lambda row: f"{row.count:,}"),
        ("p50", lambda row: integer(row.p50)),
        ("two speeds", _two_speeds),
        ("first", lambda row: integer(row.first)),
        ("later", lambda row: integer(row.later) if row.later else "-"),
        ("drift", lambda row: percent(row.drift)),
        ("outliers", lambda row: f"{row.outliers:,}"),
    )


def _two_speeds(row: RegionShape) -> str:
    two = row.modes
    return f"{integer(two.fast)} / {integer(two.slow)} ({percent(two.slow_share)} slow)" if two else "-"


MODES = Analysis("modes", run=lambda ask: duration_shapes(ask.trace), table=modes_table)
