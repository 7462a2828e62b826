"""Fit a continuous piecewise line to noisy points with as few knots as the timer's step allows."""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

_MOST_SEGMENTS = 64
_FEWEST_POINTS = 5
_GOOD_ENOUGH = 0.4
"""Root mean square residual, in timer steps, at which a line explains its points; the step alone causes 0.29."""

_GRID, _POINTS_PER_KNOT = 64, 8
"""The number of grid knots, and the points required per knot."""
_STIFFER = (400.0, 4e3, 4e4, 4e5)
"""The penalty of a change of slope by 100 %, in squared timer noise; increased while time would stand still or race."""
_ROUNDS = 6

_RACING = 1.05
"""Segments up to this many times faster than the fastest rate are noise of the timer's step, and are slowed down; a
faster one shows that the knots are too close."""
_APART, _AGREE, _MISSED = 256, 3, 4.0
"""How many timer steps anchors may be apart to be counted as one meeting, how many make one, and how many steps the
line may be off their median."""
_FASTEST = 4.0
"""No clock runs this many times faster than its average; points that suggest it are within one timer step."""


def piecewise(
    x: Float64, y: Float64, step: float, fallback_slope: float, least_slope: float = 0.0
) -> tuple[Float64, Float64, Float64]:
    """Knots (x, y) and the slope after each, such that residuals stay within a timer `step` if possible.

    No slope is below `least_slope`, which is given if the clock's fastest rate is known.
    """
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    if x[0] == x[-1]:
        return x[:1], np.array([np.median(y)]), np.array([fallback_slope])
    good = _not_delayed(x, y, step)
    knots = _knots(x[good], y[good], step, float(x[0]), float(x[-1]))
    # Change points alone miss a drifting rate, so a coarse grid is added where there are enough points.
    grid = np.linspace(x[0], x[-1], max(1, min(_GRID, len(x) // _POINTS_PER_KNOT)) + 1)
    knots = np.unique(np.concatenate([knots, grid]))
    knots = knots[np.append(np.diff(knots) > 1e-6 * (x[-1] - x[0]), True)]
    least = max(least_slope / _RACING, fallback_slope / _FASTEST)
    for stiffness in _STIFFER:
        values = _spline(x, y, knots, step, stiffness / fallback_slope**2)
        if (np.diff(values) > least * np.diff(knots)).all():
            break
    found = _not_faster(*_rising(knots, values, fallback_slope, least), least_slope)
    met = _meetings(x, _APART * max(step, 1.0) / fallback_slope)
    if len(met) < _FEWEST_POINTS or not _misses(found, x, y, met, step):
        return found
    # The clock changed more often than the knots can follow. Where several anchors agree, the line goes through them.
    through = _not_faster(*_rising(*_through(x, y, met, fallback_slope), fallback_slope, least), least_slope)
    return through if _misses(through, x, y, met, step) < _misses(found, x, y, met, step) else found


def _meetings(x: Float64, apart: float) -> list[slice]:
    """Anchors within `apart` of each other, where there are enough to outvote one that was read late."""
    bounds = [0]
    while bounds[-1] < len(x):
        bounds.append(int(np.searchsorted(x, x[bounds[-1]] + apart, side="right")))
    # An SM whose clock no other shares has one anchor at a time.
    agree = min(_AGREE, int(np.median(np.diff(bounds))))
    return [slice(begin, end) for begin, end in pairwise(bounds) if end - begin >= agree]


def _misses(piece: tuple[Float64, Float64, Float64], x: Float64, y: Float64, met: list[slice], step: float) -> int:
    """The number of meetings that the piecewise line does not go through."""
    knots, values, slopes = piece
    at = np.maximum(np.searchsorted(knots, x, side="right") - 1, 0)
    residual = y - values[at] - (x - knots[at]) * slopes[at]
    off = np.array([float(np.median(residual[one])) for one in met])
    if min(one.stop - one.start for one in met) < _AGREE:
        # A late read is off by itself, a wrong line is off at several meetings in a row.
        off = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(off, 1, mode="edge"), 3), axis=1)
    return int((np.abs(off) > _MISSED * max(step, 1.0)).sum())


def _through(x: Float64, y: Float64, met: list[slice], slope: float) -> tuple[Float64, Float64]:
    """A knot in each meeting, where the median of its anchors is along the line to its neighbours."""
    knots = np.array([float(np.median(x[one])) for one in met])
    slopes = np.full(len(met), slope)
    values = np.empty(len(met))
    for _ in range(2):
        for number, one in enumerate(met):
            values[number] = np.median(y[one] - slopes[number] * (x[one] - knots[number]))
        slopes = np.gradient(values, knots)
    return knots, values


def _not_delayed(x: Float64, y: Float64, step: float) -> npt.NDArray[np.bool_]:
    """Points near their neighbours; the others were read late, by a warp delayed between its two clock reads."""
    slope = (y[-1] - y[0]) / (x[-1] - x[0])
    bent = y - slope * x
    padded = np.pad(bent, 3, mode="edge")
    near = np.median(np.lib.stride_tricks.sliding_window_view(padded, 7), axis=1)
    good = np.abs(bent - near) <= 4 * step
    return good if good.sum() >= 2 * _FEWEST_POINTS else np.ones(len(x), bool)


def _knots(x: Float64, y: Float64, step: float, low: float, high: float) -> Float64:
    """Split the worst segment at its best change point until every segment is a line; knots are where lines cross."""
    cuts = [0, len(x)]
    done: set[tuple[int, int]] = set()

    @functools.cache
    def line(begin: int, end: int) -> tuple[float, float, float]:
        return _line(x[begin:end], y[begin:end])

    while len(cuts) <= _MOST_SEGMENTS:
        spans = [span for span in pairwise(cuts) if span not in done]
        if not spans:
            break
        begin, end = max(spans, key=lambda span: line(*span)[2])
        middle = None if line(begin, end)[2] <= _GOOD_ENOUGH * step else _change_point(x[begin:end], y[begin:end])
        if middle is None:
            done.add((begin, end))
        else:
            cuts = sorted({*cuts, begin + middle})
    lines = [line(a, b) for a, b in pairwise(cuts)]
    joints = []
    for (slope, offset, _), (next_slope, next_offset, _), cut in zip(lines, lines[1:], cuts[1:-1], strict=False):
        crossing = (offset - next_offset) / (next_slope - slope) if next_slope != slope else np.inf
        near = x[max(cut - 2, 0)], x[min(cut + 1, len(x) - 1)]
        joints.append(crossing if near[0] < crossing < near[1] else (x[cut - 1] + x[cut]) / 2)
    return np.unique(np.array([low, *(joint for joint in joints if low < joint < high), high]))


def _line(x: Float64, y: Float64) -> tuple[float, float, float]:
    """Slope, offset and root mean square residual of the least-squares line."""
    dx, dy = x - x.mean(), y - y.mean()
    sxx = float(dx @ dx)
    slope = float(dx @ dy) / sxx if sxx else 0.0
    residual = dy - slope * dx
    return slope, float(y.mean() - slope * x.mean()), float(np.sqrt(np.mean(residual**2)))


def _change_point(x: Float64, y: Float64) -> int | None:
    """The point at which two lines, one on each side, have the smallest squared error."""
    n = len(x)
    if n < 2 * _FEWEST_POINTS:
        return None
    x, y = (x - x.mean()) / max(float(np.ptp(x)), 1.0), y - y.mean()
    left, right = _errors(x, y), _errors(x[::-1], y[::-1])[::-1]
    total = left[_FEWEST_POINTS - 1 : n - _FEWEST_POINTS] + right[_FEWEST_POINTS : n - _FEWEST_POINTS + 1]
    return int(total.argmin()) + _FEWEST_POINTS


def _errors(x: Float64, y: Float64) -> Float64:
    """Squared error of the best line through the first 1, 2, ... points, computed from running sums."""
    n = np.arange(1, len(x) + 1)
    sx, sy = np.cumsum(x), np.cumsum(y)
    sxx, sxy, syy = np.cumsum(x * x) - sx * sx / n, np.cumsum(x * y) - sx * sy / n, np.cumsum(y * y) - sy * sy / n
    with np.errstate(invalid="ignore", divide="ignore"):
        explained = np.where(sxx > 1e-18, sxy * sxy / sxx, 0.0)
    return np.maximum(syy - explained, 0.0)


def _spline(x: Float64, y: Float64, knots: Float64, step: float, stiffness: float) -> Float64:
    """Values at the knots of a robust continuous piecewise line with a penalty on changes of slope.

    `stiffness` is the penalty of a change of slope by 1.
    """
    n = len(knots)
    slope, offset, _ = _line(x, y)
    y = y - (offset + slope * x)
    segment = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, n - 2)
    width = np.diff(knots)
    right = (x - knots[segment]) / width[segment]
    change = np.zeros((max(n - 2, 0), n))
    rows = np.arange(len(change))
    change[rows, rows] = 1 / width[:-1]
    change[rows, rows + 1] = -1 / width[:-1] - 1 / width[1:]
    change[rows, rows + 2] = 1 / width[1:]
    penalty = stiffness * change.T @ change * max(step, 1.0) ** 2 / 12
    weight = np.ones(len(x))
    values = np.zeros(n)
    for _ in range(_ROUNDS):
        normal = penalty.copy()
        heavy, share = weight * (1 - right), weight * right
        cross = np.bincount(segment, heavy * right, n)[:-1]
        diagonal = np.bincount(segment, heavy * (1 - right), n) + np.bincount(segment + 1, share * right, n)
        normal[range(n), range(n)] += diagonal
        normal[range(n - 1), range(1, n)] += cross
        normal[range(1, n), range(n - 1)] += cross
        target = np.bincount(segment, heavy * y, n) + np.bincount(segment + 1, share * y, n)
        # Keep the matrix regular if a knot has neither a point nor a neighbour.
        normal[range(n), range(n)] += 1e-12 * diagonal.max()
        values = _solved(normal, target.astype(np.float64))
        residual = np.abs(y - values[segment] - right * (values[segment + 1] - values[segment]))
        weight = np.minimum(1.0, 1.5 * step / np.maximum(residual, 1e-9)) ** 2
    return values + offset + slope * knots


def _solved(normal: Float64, target: Float64) -> Float64:
    """Solve the normal equations; invalid clocks put knots so far apart that the matrix is singular in doubles."""
    try:
        values = np.linalg.solve(normal, target)
    except np.linalg.LinAlgError:
        values = np.linalg.lstsq(normal, target)[0]
    return np.where(np.isfinite(values), values, 0.0)


def _rising(knots: Float64, values: Float64, fallback_slope: float, least: float) -> tuple[Float64, Float64, Float64]:
    """Drop knots until time always advances, and return the knots with the slope after each."""
    while len(knots) > 1 and (still := np.diff(values) <= least * np.diff(knots)).any():
        bad = int(np.flatnonzero(still)[0]) + 1
        knots, values = np.delete(knots, bad), np.delete(values, bad)
    slopes = np.diff(values) / np.diff(knots)
    if not len(slopes):
        return knots, values, np.array([fallback_slope])
    return knots[:-1], values[:-1], slopes


def _not_faster(knots: Float64, values: Float64, slopes: Float64, least: float) -> tuple[Float64, Float64, Float64]:
    """Slow down segments that are faster than the fastest rate, by moving the knots around them as little as possible.

    The least-squares solution is an isotonic regression of how far each knot is behind the fastest clock.
    """
    if (slopes >= least).all():
        return knots, values, slopes
    widths = np.diff(knots)
    end = values[-1] + slopes[-1] * (widths.mean() if len(widths) else 0.0)
    behind = np.append(values, end) - least * np.append(knots, knots[-1] + (widths.mean() if len(widths) else 0.0))
    blocks: list[tuple[float, int]] = []
    for value in behind.tolist():
        blocks.append((value, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (left, a), (right, b) = blocks[-2:]
            blocks[-2:] = [((left * a + right * b) / (a + b), a + b)]
    level = np.repeat([value for value, _ in blocks], [count for _, count in blocks])
    moved = level[:-1] + least * knots
    steps = np.append(np.diff(level)[:-1] / widths, np.diff(level)[-1:] / (widths.mean() if len(widths) else 1.0))
    return knots, moved, np.maximum(least + steps, least)
