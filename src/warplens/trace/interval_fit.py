"""Fit a line through intervals: the clock offset that puts every launch inside its kernel, and its error.

A kernel's slice begins before its first warp and ends after its last, so each kernel bounds the offset to add to the
device's clock: from `low` to `high`. All lines within every bound form a convex polygon in (height, slope). Its centre
is the fit, and its extent is the error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

MAX_DRIFT = 1e-4
"""The largest relative drift between two clocks of one machine; 1.1e-5 was measured."""
_ROUNDING_NS = 0.5
_SEARCH_STEPS = 120
_GOLDEN = (5**0.5 - 1) / 2


@dataclass(frozen=True)
class ClockLine:
    """The offset to add to a device's time: `offset_ns` at `reference_ns`, plus `drift` for every ns since."""

    reference_ns: int
    offset_ns: int
    drift: float

    def __call__(self, device_ns: Int64) -> Int64:
        """Convert device times to the other clock. Their order is kept, since the drift is far below 1."""
        since = (device_ns - self.reference_ns).astype(np.float64)
        return device_ns + self.offset_ns + np.floor(since * self.drift + 0.5).astype(np.int64)


@dataclass(frozen=True)
class IntervalFit:
    """The centre of all lines that fit, and the corners of their polygon as (height, slope) relative to it.

    `widened_ns` is how far every interval had to be widened on each side for any line to fit.
    """

    line: ClockLine
    corners: Float64
    widened_ns: float

    def error_ns(self, device_ns: Int64) -> Float64:
        """The error of the line at these times: the extent of the polygon, and the widening."""
        since = (device_ns - self.line.reference_ns).astype(np.float64)
        spread = self.corners[:, :1] + self.corners[:, 1:] * since
        worst: Float64 = np.abs(spread).max(axis=0) + self.widened_ns + 2 * _ROUNDING_NS
        return worst


def fit_intervals(time: Int64, low: Int64, high: Int64, max_drift: float = MAX_DRIFT) -> IntervalFit:
    """Fit the line whose height at `time` lies within [low, high] of every interval, or misses them least."""
    reference, offset = int(time[len(time) // 2]), int(low[len(low) // 2])
    scale = float(max(np.abs(time - reference).max(), 1))
    u, steepest = (time - reference) / scale, max_drift * scale
    lows, highs = (low - offset).astype(np.float64), (high - offset).astype(np.float64)
    widened = max(_least_widening(u, lows, highs, steepest), 0.0)
    slack = widened + _ROUNDING_NS
    corners = _polygon(u, lows - slack, highs + slack, steepest)
    centre = _centre(corners)
    line = ClockLine(reference, offset + round(float(centre[0])), float(centre[1]) / scale)
    return IntervalFit(line, (corners - centre) / (1.0, scale), widened)


def _least_widening(u: Float64, low: Float64, high: Float64, steepest: float) -> float:
    """How much each side of every interval must be widened for a line to meet them all; negative is slack.

    For a given slope, the best height is halfway between the highest low and the lowest high, and the widening that is
    needed is convex in the slope.
    """

    def missing(slope: float) -> float:
        return float((low - slope * u).max() - (high - slope * u).min()) / 2

    left, right = -steepest, steepest
    for _ in range(_SEARCH_STEPS):
        a, b = right - _GOLDEN * (right - left), left + _GOLDEN * (right - left)
        if missing(a) <= missing(b):
            right = b
        else:
            left = a
    return missing((left + right) / 2)


def _polygon(u: Float64, low: Float64, high: Float64, steepest: float) -> Float64:
    """The corners of all (height, slope) with low <= height + slope * u <= high."""
    tallest = max(np.abs(low).max(), np.abs(high).max()) + steepest + 1.0
    corners = np.array([[-tallest, -steepest], [tallest, -steepest], [tallest, steepest], [-tallest, steepest]])
    # Each side as normal · corner <= limit.
    normals = np.concatenate([np.stack([-np.ones_like(u), -u], 1), np.stack([np.ones_like(u), u], 1)])
    limits = np.concatenate([-low, high])
    open_ = np.ones(len(limits), bool)
    while open_.any():
        beyond = (corners @ normals.T - limits).max(axis=0)
        beyond[~open_] = -np.inf
        worst = int(beyond.argmax())
        if beyond[worst] <= 0:
            break
        cut = _clip(corners, normals[worst], float(limits[worst]))
        open_[worst] = False
        corners = cut if len(cut) else corners
    return corners


def _clip(corners: Float64, normal: Float64, limit: float) -> Float64:
    """The part of a convex polygon on one side of a line."""
    beyond = corners @ normal - limit
    clipped: list[Float64] = []
    for at in range(len(corners)):
        here, there = beyond[at], beyond[(at + 1) % len(corners)]
        if here <= 0:
            clipped.append(corners[at])
        if (here < 0 < there) or (there < 0 < here):
            clipped.append(corners[at] + (corners[(at + 1) % len(corners)] - corners[at]) * (here / (here - there)))
    return np.array(clipped).reshape(-1, 2)


def _centre(corners: Float64) -> Float64:
    """The centroid, which lies inside every convex polygon."""
    middle: Float64 = corners.mean(axis=0)
    inner = corners - middle
    after = np.roll(inner, -1, axis=0)
    cross = inner[:, 0] * after[:, 1] - after[:, 0] * inner[:, 1]
    area = float(cross.sum()) / 2
    if abs(area) <= 1e-9 * float(np.prod(np.abs(inner).max(axis=0))):
        return middle
    centre: Float64 = middle + ((inner + after) * cross[:, None]).sum(axis=0) / (6 * area)
    return centre
