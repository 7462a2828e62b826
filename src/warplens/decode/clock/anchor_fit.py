"""Convert cycles to nanoseconds: fit one piecewise line per clock to all its (clock64, globaltimer) anchors.

Clocks start millions of cycles apart and change speed while a kernel runs, and the globaltimer advances in steps (32 ns
on Hopper), so neither per_unit is enough to place a record. SMs that share a clock (domains.py) are fitted as one. All
clocks of a launch are first fitted together: each has its own offset, and a rate that is drawn towards the common rate
as far as its own anchors permit. Where a single line does not explain a clock's anchors, knots are added.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.decode.clock.anchor_sums import AnchorSums
from warplens.decode.clock.domains import LOOKS, ahead, domains, grouped
from warplens.decode.clock.knots import piecewise
from warplens.decode.clock.track_units import TrackUnits
from warplens.record.layout import SLOWEST_NS

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Piece = tuple[Float64, Float64, Float64]
"""Knots, their times, and the slope after each."""

_RATE_SPREAD = 2e-4
"""The assumed relative spread of the SMs' rates, as they are one clock domain."""
_NOMINAL_SPREAD = 0.15
"""The assumed relative distance of the real rate from the nominal one."""
BENT, _OWN_RATE = 0.6, 2.0
"""Root mean square residuals, in timer steps, above which an SM may get knots, and its own rate."""
_SAME_CLOCK, _FEW_ANCHORS = 0.5, 1.5
"""How far, in timer steps, the median of an SM's anchors may lie off the line of its clock domain, and how much further
for an SM with a single anchor."""
TIMER_TOLERANCE = 1e-4
"""How much faster than its maximum a clock may appear, because the globaltimer's own oscillator is slow."""
_FEW_IN_SEGMENT = 16
"""The fewest anchors that the error of a segment's slope is computed from, as the fit's stiffness joins segments."""
_SURE = 2.0
"""Stated errors of rates are this many standard errors: about 95 %."""
_TOO_COARSE_NS = 4096.0
UNIT_BITS = 17
UNIT = 1 << UNIT_BITS
"""Units of a capture's fit are numbered launch * UNIT + SM."""
_ROUNDS = 4


@dataclass(frozen=True)
class ClockLines:
    """The fit of every unit (an SM in a launch): `count` segments, starting at `first` in the knot arrays.

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
    slope_error: Float64
    """The error of each slope, from the timer's step and the residuals of the anchors of its segment."""
    fastest_mhz: float = 0.0
    """The maximum clock of the device; 0 if unknown."""

    def find(self, unit: Int64) -> Int64:
        """The positions of `unit` values in the fit."""
        return np.searchsorted(self.unit, unit)

    def of_tracks(self, units: TrackUnits) -> Int64:
        """The same for the units of tracks, by a table of launches and SMs."""
        place = np.zeros((units.launches, units.sms), np.int32)
        place[self.unit >> UNIT_BITS, self.unit & (UNIT - 1)] = np.arange(len(self.unit))
        return units.look_up(place)

    def __call__(self, unit: Int64, clock: Int64) -> Float64:
        """Convert clocks of the given units to nanoseconds since `base_ns`."""
        return self.at_line(self.find(unit), clock)

    def at_line(self, at: Int64, clock: Int64) -> Float64:
        """The same for units that `find` has found."""
        first = self.first[at]
        if not (self.count > 1).any():
            straight: Float64 = self.knot_ns[first] + (clock - self.knot_clock[first]) * self.slope[first]
            return straight
        segment = first.copy()
        bent = np.flatnonzero(self.count[at] > 1)
        bent = bent[np.argsort(first[bent], kind="stable")]
        for of in np.split(bent, np.flatnonzero(np.diff(first[bent])) + 1) if len(bent) else ():
            begin, count = int(first[of[0]]), int(self.count[at[of[0]]])
            inside = np.searchsorted(self.knot_clock[begin : begin + count], clock[of], side="right") - 1
            segment[of] += np.maximum(inside, 0)
        out: Float64 = self.knot_ns[segment] + (clock - self.knot_clock[segment]) * self.slope[segment]
        return out

    def mhz(self) -> tuple[float, float, float]:
        """The slowest, mean and fastest clock rate among the segments."""
        rates = self._rates()
        return (float(rates.min()), float(rates.mean()), float(rates.max())) if len(rates) else (0.0, 0.0, 0.0)

    def mhz_error(self) -> float:
        """The error of the slowest and of the fastest rate, whichever is larger."""
        rates = self._rates()
        if not len(rates):
            return 0.0
        return max(float(rates[at] * self.slope_error[at] / self.slope[at]) for at in (rates.argmin(), rates.argmax()))

    def _rates(self) -> Float64:
        rates = 1000.0 / self.slope
        return np.minimum(rates, self.fastest_mhz) if self.fastest_mhz > 0 else rates


def fit_anchors(
    unit: Int64, group: Int64, clock: Int64, ns: Int64, nominal_mhz: float = 0.0, timer: GlobalTimer | None = None
) -> ClockLines:
    """Fit the anchors. `unit` identifies the SM of each anchor, `group` the launch.

    `nominal_mhz` is the device's maximum clock, 0 if unknown: no clock gets a faster rate. `timer` is given if the
    anchors are only a part of a larger fit.
    """
    if not len(unit):
        none, no_rate = np.empty(0, np.int64), np.empty(0)
        return ClockLines(none, none, none, none, no_rate, no_rate, 0, no_rate, 0.0, "none", no_rate)
    units, member = np.unique(unit, return_inverse=True)
    group_of = np.zeros(len(units), np.int64)
    group_of[member] = np.unique(group, return_inverse=True)[1]
    anchors = Anchors(clock, ns, timer or GlobalTimer.of(ns), nominal_mhz)
    per_unit = anchors.lines(member, group_of)
    lead, sure = ahead(clock, ns, member, group_of, per_unit.slope)
    domain = grouped(lead, sure, group_of)

    def divided(misplaced: npt.NDArray[np.bool_], look: int) -> Int64:
        """Divide domains that contain several clocks with a finer limit, and finally into single SMs."""
        doubted = np.isin(domain, domain[misplaced])
        finer = domains(lead, group_of, look) if look < LOOKS else np.arange(len(units))
        return np.unique(np.where(doubted, len(units) + finer, domain), return_inverse=True)[1]

    for look in range(1, LOOKS + 1):
        misplaced = _clearly_misplaced(anchors, domain, member, group_of)
        if not misplaced.any():
            break
        domain = divided(misplaced, look)
    for look in range(1, LOOKS + 1):
        fitted = _bent(anchors, domain[member], _first_of(domain, group_of))
        misplaced = _misplaced_units(fitted.residual, member, len(units), anchors.scale)[0]
        if not misplaced.any():
            break
        domain = divided(misplaced, look)
    else:
        fitted = _bent(anchors, domain[member], _first_of(domain, group_of))
    return ClockLines(
        unit=units,
        first=(np.cumsum(fitted.count) - fitted.count)[domain],
        count=fitted.count[domain],
        knot_clock=np.repeat(fitted.origin, fitted.count) + np.rint(fitted.xs).astype(np.int64),
        knot_ns=fitted.offset,
        slope=fitted.slope,
        base_ns=anchors.timer.base_ns,
        residual_ns=np.abs(fitted.residual),
        step_ns=anchors.timer.step,
        method=fitted.method,
        slope_error=fitted.slope_error,
        fastest_mhz=nominal_mhz,
    )


def _first_of(domain: Int64, group_of: Int64) -> Int64:
    return group_of[np.unique(domain, return_index=True)[1]]


def _misplaced_units(
    residual: Float64, member: Int64, units: int, scale: float
) -> tuple[npt.NDArray[np.bool_], Float64]:
    """Whether each unit's anchors lie to one side of its domain's line, which means another clock; and their median."""
    order = np.lexsort((residual, member))
    bounds = np.searchsorted(member[order], np.arange(units + 1))
    middle = residual[order][(bounds[:-1] + bounds[1:] - 1) // 2]
    count = np.diff(bounds)
    allowed = scale * (_SAME_CLOCK + _FEW_ANCHORS / np.sqrt(np.maximum(count, 1)))
    return (np.abs(middle) > allowed) & (count > 2), middle


def _clearly_misplaced(anchors: Anchors, domain: Int64, member: Int64, group_of: Int64) -> npt.NDArray[np.bool_]:
    """Find such units before the slow search for knots.

    If straight lines with one offset per unit explain a domain's anchors, knots would only imitate the offsets.
    """
    straight = anchors.lines(domain[member], _first_of(domain, group_of))
    misplaced, middle = _misplaced_units(straight.residual, member, len(group_of), anchors.scale)
    square = np.bincount(domain[member], (straight.residual - middle[member]) ** 2)
    explained = np.sqrt(square / np.bincount(domain[member])) <= BENT * anchors.scale
    result: npt.NDArray[np.bool_] = misplaced & explained[domain]
    return result


@dataclass(frozen=True)
class GlobalTimer:
    """The globaltimer: the earliest time of all anchors, and its step, estimated from them; 0 if unknown."""

    base_ns: int
    step: float

    @classmethod
    def of(cls, ns: Int64) -> GlobalTimer:
        base = int(ns.min())
        return cls(base, min(float(np.gcd.reduce(ns - base)), _TOO_COARSE_NS))


@dataclass(frozen=True)
class Straight:
    """One line per unit: ns since the base = offset + (clock - origin) * slope."""

    origin: Int64
    offset: Float64
    slope: Float64
    residual: Float64
    method: str
    slope_error: Float64


@dataclass(frozen=True)
class _Bent(Straight):
    """Piecewise lines with `count` segments per unit, which begin at `xs`."""

    xs: Float64
    count: Int64


@dataclass(frozen=True)
class Anchors:
    """Pairs of a clock and the globaltimer, and what limits their fit."""

    clock: Int64
    ns: Int64
    timer: GlobalTimer
    nominal_mhz: float

    @property
    def scale(self) -> float:
        """The step of the timer, but at least its resolution."""
        return max(self.timer.step, 2.0)

    def points(self, member: Int64, n: int) -> tuple[Int64, Float64, Float64]:
        """The first clock of each unit, and all anchors relative to it and to the base."""
        origin = np.full(n, np.iinfo(np.int64).max)
        np.minimum.at(origin, member, self.clock)
        return (
            origin,
            (self.clock - origin[member]).astype(np.float64),
            (self.ns - self.timer.base_ns).astype(np.float64),
        )

    def lines(self, member: Int64, group_of: Int64) -> Straight:
        """Fit robust lines, in which outliers have little weight."""
        origin, x, y = self.points(member, len(group_of))
        step = max(self.timer.step, 1.0)
        noise = step / np.sqrt(12.0)
        sums = AnchorSums.of(member, len(group_of), x, y)
        for _ in range(_ROUNDS):
            slope, offset, error, measured = _lines(sums, group_of, noise, self.nominal_mhz)
            sums.weigh(offset, slope, 1.5 * step)
        return Straight(origin, offset, slope, sums.residual, measured, error)

    def misfit(self, residual: Float64, member: Int64, n: int) -> Float64:
        """The root mean square residual of each unit, in timer steps; beyond `BENT` one line does not explain it."""
        square = np.bincount(member, np.minimum(np.abs(residual), 1e9) ** 2, n)
        result: Float64 = np.sqrt(square / np.maximum(np.bincount(member, minlength=n), 1)) / self.scale
        return result


def _bent(anchors: Anchors, member: Int64, group_of: Int64) -> _Bent:
    """Fit lines, with knots where a single line does not explain a unit's anchors."""
    n = len(group_of)
    line = anchors.lines(member, group_of)
    _, x, y = anchors.points(member, n)
    residual, scale = line.residual, anchors.scale
    misfit = anchors.misfit(residual, member, n)
    least = _least_slope(anchors.nominal_mhz)
    pieces: dict[int, Piece] = {}
    order = np.argsort(member, kind="stable")
    bounds = np.searchsorted(member[order], np.arange(n + 1))
    errors: dict[int, Float64] = {}
    for u in np.flatnonzero(misfit > BENT).tolist():
        of = order[bounds[u] : bounds[u + 1]]
        xs, ys, slopes = piecewise(x[of], y[of], scale, float(line.slope[u]), least)
        piece = xs, ys, np.minimum(slopes, SLOWEST_NS)  # damaged headers may say that a few cycles took years
        remaining = y[of] - _evaluate(piece, x[of])
        # Knots must halve the error, and an own rate needs more evidence than a few delayed reads.
        explains = np.sqrt(np.mean(remaining**2)) < 0.5 * misfit[u] * scale
        if explains and (len(piece[0]) > 1 or misfit[u] > _OWN_RATE):
            pieces[u] = piece
            errors[u] = _segment_errors(piece, x[of], remaining, max(anchors.timer.step, 1.0))
            residual[of] = remaining
    all_lines = [pieces.get(u, (np.zeros(1), line.offset[u : u + 1], line.slope[u : u + 1])) for u in range(n)]
    xs, offset, slope = (np.concatenate([part[i] for part in all_lines]) for i in range(3))
    error = np.concatenate([errors.get(u, line.slope_error[u : u + 1]) for u in range(n)])
    count = np.array([len(part[0]) for part in all_lines], np.int64)
    return _Bent(line.origin, offset, slope, residual, "piecewise" if pieces else line.method, error, xs, count)


def _segment_errors(piece: Piece, x: Float64, residual: Float64, step: float) -> Float64:
    """The error of each segment's slope, from the anchors of the segment, or from as many around it as give a slope."""
    xs, _, slopes = piece
    order = np.argsort(x, kind="stable")
    x, noise = x[order] - x.mean(), np.sqrt(max(np.median(np.abs(residual)) ** 2, step**2 / 12))
    sum_x, sum_xx = np.append(0, np.cumsum(x)), np.append(0, np.cumsum(x * x))
    bounds = np.append(np.searchsorted(x, xs - xs[0] + x[0]), len(x))
    few = np.maximum(_FEW_IN_SEGMENT - np.diff(bounds), 0)
    begin = np.maximum(bounds[:-1] - few // 2, 0)
    end = np.minimum(bounds[1:] + (few + 1) // 2, len(x))
    count = np.maximum(end - begin, 1)
    spread = sum_xx[end] - sum_xx[begin] - (sum_x[end] - sum_x[begin]) ** 2 / count
    error: Float64 = np.minimum(_SURE * noise / np.sqrt(np.maximum(spread, 1e-9)), slopes)
    return error


def _lines(
    sums: AnchorSums, group_of: Int64, noise: float, nominal_mhz: float
) -> tuple[Float64, Float64, Float64, str]:
    """The slope, offset and error of the slope of each unit, and the source of the rates.

    They are found by weighted least squares, with the slope drawn towards that of its group.
    """
    mean_x, mean_y = sums.means()
    sxx, sxy, moved = sums.moments(mean_x, mean_y)
    # A timer that did not advance during a launch gives no rate, only that the launch took less than a step.
    advanced = (np.bincount(group_of, moved) > 0)[group_of]
    sxx, sxy = sxx * advanced, sxy * advanced
    group_sxx, group_sxy = np.bincount(group_of, sxx), np.bincount(group_of, sxy)
    if nominal_mhz > 0:
        nominal = 1000.0 / nominal_mhz
        evidence = group_sxx > 0
        doubt = (noise / (_NOMINAL_SPREAD * nominal)) ** 2
        group_sxx, group_sxy = group_sxx + doubt * evidence, group_sxy + doubt * nominal * evidence
    with np.errstate(invalid="ignore", divide="ignore"):
        common = np.where(group_sxx > 0, np.clip(group_sxy / group_sxx, _least_slope(nominal_mhz), SLOWEST_NS), np.nan)
    known = np.isfinite(common) & (common > 0)
    method = "fitted" if known.any() else "nominal" if nominal_mhz > 0 else "unknown"
    if not known.all():
        elsewhere = float(np.median(common[known])) if known.any() else 1000.0 / nominal_mhz if nominal_mhz > 0 else 1.0
        common = np.where(known, common, elsewhere)
    prior = common[group_of]
    trust = (noise / (_RATE_SPREAD * prior)) ** 2
    slope = (sxy + trust * prior) / (sxx + trust)
    slope = np.clip(np.where(slope > 0, slope, prior), _least_slope(nominal_mhz), SLOWEST_NS)
    # What is known about the common rate, and about this unit's distance from it.
    with np.errstate(divide="ignore"):
        common_error = np.minimum(noise / np.sqrt(group_sxx), _NOMINAL_SPREAD * common)[group_of]
    error = _SURE * np.hypot(common_error * trust / (sxx + trust), noise / np.sqrt(sxx + trust))
    return slope, mean_y - slope * mean_x, error, method


def _least_slope(nominal_mhz: float) -> float:
    """Nanoseconds per cycle of the fastest clock that the device can have; 0 if its nominal rate is unknown."""
    return 1000.0 / (nominal_mhz * (1 + TIMER_TOLERANCE)) if nominal_mhz > 0 else 0.0


def _evaluate(line: Piece, x: Float64) -> Float64:
    xs, ys, slopes = line
    at = np.maximum(np.searchsorted(xs, x, side="right") - 1, 0)
    return ys[at] + (x - xs[at]) * slopes[at]
