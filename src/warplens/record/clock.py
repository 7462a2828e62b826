"""Cycles to nanoseconds: one piecewise line per SM through all its (clock64, globaltimer) anchors.

The SMs' clocks start millions of cycles apart and change speed while a kernel runs, and the globaltimer moves in
steps (32 ns on Hopper), so neither alone places a record. All SMs of a launch are fitted together first: an own
offset each and, because they share a clock domain, a rate drawn to the common one as far as the SM's own anchors
leave it open. Where a single line does not explain an SM's anchors, that SM gets knots.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.record.knots import piecewise

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Piece = tuple[Float64, Float64, Float64]
"""Knots, their times, and the slope after each."""

_RATE_SPREAD = 2e-4
"""Relative spread of the SMs' rates that is believed without evidence: they are one clock domain."""
_NOMINAL_SPREAD = 0.15
"""Relative distance of the real rate from the nominal one that is believed without evidence."""
_BENT, _OWN_RATE = 0.6, 2.0
"""Root mean square residual, in timer steps, from which an SM may get knots, and from which a rate of its own."""
_TOO_COARSE_NS = 4096.0
_ROUNDS = 4


@dataclass(frozen=True)
class Lines:
    """The fit of every unit (an SM in a launch): `count` segments from `first` on in the knot arrays.

    ns = knot_ns + (clock - knot_clock) * slope, relative to `base_ns`.
    """

    unit: Int64
    first: Int64
    count: Int64
    knot_clock: Int64
    knot_ns: Float64
    slope: Float64
    base_ns: int
    residual_ns: Float64
    step_ns: float
    method: str

    def find(self, unit: Int64) -> Int64:
        """The positions of `unit` values in the fit."""
        return np.searchsorted(self.unit, unit)

    def __call__(self, unit: Int64, clock: Int64) -> Float64:
        """Nanoseconds since `base_ns` of clocks on the given units."""
        at = self.find(unit)
        out = np.empty(len(clock), np.float64)
        for position in np.unique(at):
            of = at == position
            part = slice(int(self.first[position]), int(self.first[position] + self.count[position]))
            segment = np.maximum(np.searchsorted(self.knot_clock[part], clock[of], side="right") - 1, 0)
            offset = clock[of] - self.knot_clock[part][segment]
            out[of] = self.knot_ns[part][segment] + offset * self.slope[part][segment]
        return out

    def mhz(self) -> tuple[float, float, float]:
        """The slowest, mean and fastest clock among the segments."""
        rates = 1000.0 / self.slope
        return (float(rates.min()), float(rates.mean()), float(rates.max())) if len(rates) else (0.0, 0.0, 0.0)


def fit(unit: Int64, group: Int64, clock: Int64, ns: Int64, nominal_mhz: float = 0.0) -> Lines:
    """Fit the anchors. `unit` tells SMs apart, `group` which units share a clock domain (one launch)."""
    if not len(unit):
        none = np.empty(0, np.int64)
        return Lines(none, none, none, none, np.empty(0), np.empty(0), 0, np.empty(0), 0.0, "none")
    units, member = np.unique(unit, return_inverse=True)
    n = len(units)
    base_ns = int(ns.min())
    origin = np.full(n, np.iinfo(np.int64).max)
    np.minimum.at(origin, member, clock)
    x, y = (clock - origin[member]).astype(np.float64), (ns - base_ns).astype(np.float64)
    step = timer_step(ns)
    noise = max(step, 1.0) / np.sqrt(12.0)
    group_of = np.zeros(n, np.int64)
    group_of[member] = np.unique(group, return_inverse=True)[1]

    weight = np.ones(len(x))
    for _ in range(_ROUNDS):
        slope, offset, measured = _lines(x, y, weight, member, group_of, noise, nominal_mhz)
        residual = y - (offset[member] + slope[member] * x)
        scale = 1.5 * max(step, 1.0)
        weight = np.minimum(1.0, scale / np.maximum(np.abs(residual), 1e-9)) ** 2

    square = np.bincount(member, np.minimum(np.abs(residual), 1e9) ** 2, n) / np.bincount(member, minlength=n)
    misfit = np.sqrt(square) / max(step, 2.0)
    pieces: dict[int, Piece] = {}
    order = np.argsort(member, kind="stable")
    bounds = np.searchsorted(member[order], np.arange(n + 1))
    for u in np.flatnonzero(misfit > _BENT).tolist():
        of = order[bounds[u] : bounds[u + 1]]
        piece = piecewise(x[of], y[of], max(step, 2.0), float(slope[u]))
        left = y[of] - _evaluate(piece, x[of])
        # Knots must earn their place, and a rate of its own needs more than a few late reads: one clock domain.
        explains = np.sqrt(np.mean(left**2)) < 0.5 * np.sqrt(square[u])
        if explains and (len(piece[0]) > 1 or misfit[u] > _OWN_RATE):
            pieces[u] = piece
            residual[of] = left
    lines = [pieces.get(u, (np.zeros(1), offset[u : u + 1], slope[u : u + 1])) for u in range(n)] if pieces else []
    count = np.array([len(line[0]) for line in lines], np.int64) if pieces else np.ones(n, np.int64)
    xs = np.zeros(n)
    if pieces:
        xs, offset, slope = (np.concatenate([line[i] for line in lines]) for i in range(3))
    return Lines(
        unit=units,
        first=np.cumsum(count) - count,
        count=count,
        knot_clock=np.repeat(origin, count) + np.rint(xs).astype(np.int64),
        knot_ns=offset,
        slope=slope,
        base_ns=base_ns,
        residual_ns=np.abs(residual),
        step_ns=step,
        method="piecewise" if pieces else measured,
    )


def timer_step(ns: Int64) -> float:
    """The step of the globaltimer, as the anchors show it; 0 when they cannot."""
    values = np.unique(ns)
    step = float(np.gcd.reduce(np.diff(values))) if len(values) > 1 else 0.0
    return min(step, _TOO_COARSE_NS)


def _lines(
    x: Float64, y: Float64, weight: Float64, member: Int64, group_of: Int64, noise: float, nominal_mhz: float
) -> tuple[Float64, Float64, str]:
    """Slope and offset of each unit by weighted least squares, its slope drawn to that of its group."""
    n = len(group_of)
    total = np.bincount(member, weight, n)
    mean_x, mean_y = np.bincount(member, weight * x, n) / total, np.bincount(member, weight * y, n) / total
    dx, dy = x - mean_x[member], y - mean_y[member]
    sxx, sxy = np.bincount(member, weight * dx * dx, n), np.bincount(member, weight * dx * dy, n)
    group_sxx, group_sxy = np.bincount(group_of, sxx), np.bincount(group_of, sxy)
    if nominal_mhz > 0:
        nominal = 1000.0 / nominal_mhz
        evidence = group_sxx > 0
        doubt = (noise / (_NOMINAL_SPREAD * nominal)) ** 2
        group_sxx, group_sxy = group_sxx + doubt * evidence, group_sxy + doubt * nominal * evidence
    with np.errstate(invalid="ignore", divide="ignore"):
        common = np.where(group_sxx > 0, group_sxy / group_sxx, np.nan)
    known = np.isfinite(common) & (common > 0)
    method = "fitted" if known.any() else "nominal" if nominal_mhz > 0 else "unknown"
    if not known.all():
        elsewhere = float(np.median(common[known])) if known.any() else 1000.0 / nominal_mhz if nominal_mhz > 0 else 1.0
        common = np.where(known, common, elsewhere)
    prior = common[group_of]
    trust = (noise / (_RATE_SPREAD * prior)) ** 2
    slope = (sxy + trust * prior) / (sxx + trust)
    slope = np.where(slope > 0, slope, prior)
    return slope, mean_y - slope * mean_x, method


def _evaluate(line: Piece, x: Float64) -> Float64:
    xs, ys, slopes = line
    at = np.maximum(np.searchsorted(xs, x, side="right") - 1, 0)
    return ys[at] + (x - xs[at]) * slopes[at]
