"""A continuous piecewise line through noisy points, with as few knots as the timer's step allows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

_MOST_KNOTS = 64
_FEWEST_POINTS = 4


def piecewise(x: Float64, y: Float64, step: float, fallback_slope: float) -> tuple[Float64, Float64, Float64]:
    """Knots (x, y) and the slope after each, so that residuals stay within a timer `step` where points allow it."""
    order = np.argsort(x, kind="stable")
    x, y = x[order], y[order]
    knots = [float(x[0]), float(x[-1])]
    if knots[0] == knots[1]:
        return x[:1], np.array([np.median(y)]), np.array([fallback_slope])
    blocked: set[tuple[float, float]] = set()
    while len(knots) < _MOST_KNOTS:
        values = _spline(x, y, np.array(knots), step)
        split = _worst_split(x, y - np.interp(x, knots, values), knots, step, blocked)
        if split is None:
            break
        knots = sorted({*knots, split})
    return _rising(np.array(knots), _spline(x, y, np.array(knots), step), fallback_slope)


def _spline(x: Float64, y: Float64, knots: Float64, step: float) -> Float64:
    """Least-squares values at the knots; far points are weighted down, since a read can be delayed but not early."""
    segment = np.clip(np.searchsorted(knots, x, side="right") - 1, 0, len(knots) - 2)
    right = (x - knots[segment]) / (knots[segment + 1] - knots[segment])
    basis = np.zeros((len(x), len(knots)))
    rows = np.arange(len(x))
    basis[rows, segment], basis[rows, segment + 1] = 1 - right, right
    weight = np.ones(len(x))
    values = np.interp(knots, x, y)
    for _ in range(4):
        values = np.linalg.lstsq(basis * weight[:, None], y * weight, rcond=None)[0]
        weight = np.minimum(1.0, 3 * step / np.maximum(np.abs(y - basis @ values), 1e-9))
    return np.asarray(values)


def _worst_split(
    x: Float64, residual: Float64, knots: list[float], step: float, blocked: set[tuple[float, float]]
) -> float | None:
    """Where the segment that fits worst bends: the largest residual that its neighbours share."""
    worst: tuple[float, float] | None = None
    for left, right in zip(knots, knots[1:], strict=False):
        of = np.flatnonzero((x >= left) & (x <= right))
        if len(of) < 2 * _FEWEST_POINTS or (left, right) in blocked:
            continue
        smooth = _running_median(residual[of])
        size = float(np.sqrt(np.mean(smooth**2)))
        if size <= 0.35 * step:
            continue
        inner = of[_FEWEST_POINTS // 2 : -(_FEWEST_POINTS // 2)]
        at = float(x[inner[np.abs(smooth[_FEWEST_POINTS // 2 : -(_FEWEST_POINTS // 2)]).argmax()]])
        if not left < at < right:
            blocked.add((left, right))
        elif worst is None or size > worst[0]:
            worst = size, at
    return worst[1] if worst else None


def _running_median(values: Float64) -> Float64:
    padded = np.concatenate([values[:1], values[:1], values, values[-1:], values[-1:]])
    return np.asarray(np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1))


def _rising(knots: Float64, values: Float64, fallback_slope: float) -> tuple[Float64, Float64, Float64]:
    """Drop knots until time never runs backward, then give each its slope; the last one keeps the one before it."""
    while len(knots) > 1 and (np.diff(values) <= 0).any():
        bad = int(np.flatnonzero(np.diff(values) <= 0)[0]) + 1
        knots, values = np.delete(knots, bad), np.delete(values, bad)
    slopes = np.diff(values) / np.diff(knots)
    if not len(slopes):
        return knots, values, np.array([fallback_slope])
    return knots[:-1], values[:-1], slopes
