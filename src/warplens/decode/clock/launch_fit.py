"""Fit the clocks of all launches of a capture.

A few launches are fitted from all their anchors. In a capture of many launches, those few also show which SMs share a
clock, which is a property of the device; every other launch then needs one line per clock, through a part of its
anchors. Where such lines do not explain the anchors of a launch, all of its anchors are fitted as in the few.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from warplens.decode.clock.anchor_fit import BENT, UNIT, UNIT_BITS, Anchors, ClockLines, GlobalTimer, fit_anchors
from warplens.decode.clock.track_units import TrackUnits

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]
Bool = npt.NDArray[np.bool_]

_MANY = 64
"""Up to this many launches of a device, all anchors of all of them are fitted."""
_SAMPLE = 16
"""The number of launches that show which SMs share a clock."""
_MOST_ANCHORS = 128
"""Of each other launch, about this many anchors are used."""


@dataclass(frozen=True)
class LaunchAnchors:
    """Anchors of launches: the unit of each (launch * UNIT + SM), its clock and its globaltimer."""

    unit: Int64
    clock: Int64
    ns: Int64

    def take(self, which: Bool | Int64) -> LaunchAnchors:
        return LaunchAnchors(self.unit[which], self.clock[which], self.ns[which])

    def fit(self, mhz: float, timer: GlobalTimer) -> ClockLines:
        return fit_anchors(self.unit, self.unit >> UNIT_BITS, self.clock, self.ns, mhz, timer)


class AnchoredTracks(Protocol):
    """Tracks in launch order, with the anchors of each."""

    @property
    def units(self) -> TrackUnits:
        """The launch and the SM of each track."""

    def anchors(self, tracks: Int64 | None = None) -> LaunchAnchors:
        """The anchors of some of the tracks, or of all."""


def fit_launches(source: AnchoredTracks, device: Int64, nominal_mhz: Float64) -> ClockLines:
    """Fit the clocks of all launches; `device` and `nominal_mhz` describe the device that each launch ran on."""
    units = source.units
    if not len(units):
        return fit_anchors(*(np.empty(0, np.int64),) * 4)
    present = np.flatnonzero(units.counts)
    many = [index for index in np.unique(device).tolist() if (device[present] == index).sum() > _MANY]
    wanted = None
    if many:
        share = _MOST_ANCHORS / 2 / np.maximum(units.counts, 1)
        share[~np.isin(device, many)] = 1.0
        sampled = np.zeros(len(device), bool)
        for index in many:
            own = present[device[present] == index]
            sampled[own[np.linspace(0, len(own) - 1, _SAMPLE).astype(np.int64)]] = True
            sampled[own[_launches_with_other_sms(units.there[own], sampled[own])]] = True
        share[sampled] = 1.0
        wanted = units.some(share)
    anchors = source.anchors(wanted)
    timer = GlobalTimer.of(anchors.ns)
    of_device = device[anchors.unit >> UNIT_BITS]
    parts: list[ClockLines] = []
    for index in np.unique(of_device).tolist():
        own_anchors, mhz = anchors.take(of_device == index), float(nominal_mhz[device == index][0])
        if index in many:
            parts += _fit_many(source, own_anchors, sampled, device == index, mhz, timer)
        else:
            parts.append(own_anchors.fit(mhz, timer))
    return _merged([part for part in parts if len(part.unit)])


def _fit_many(
    source: AnchoredTracks, chosen: LaunchAnchors, sampled: Bool, of_device: Bool, mhz: float, timer: GlobalTimer
) -> list[ClockLines]:
    full = chosen.take(sampled[chosen.unit >> UNIT_BITS]).fit(mhz, timer)
    label = _shared_clocks(full, source.units.sms)
    chosen = chosen.take(~sampled[chosen.unit >> UNIT_BITS])
    lines, unexplained = _one_line_per_clock(chosen, _units(source.units, of_device & ~sampled), label, mhz, timer)
    if not len(unexplained):
        return [full, lines]
    again = np.zeros(len(sampled), bool)
    again[unexplained] = True
    return [full, lines, source.anchors(source.units.of(again)).fit(mhz, timer)]


def _units(units: TrackUnits, wanted: Bool) -> Int64:
    """The distinct units of the wanted launches, in order."""
    launch, sm = np.nonzero(units.there & wanted[:, None])
    return (launch << UNIT_BITS) + sm


def _launches_with_other_sms(there: Bool, sampled: Bool) -> Int64:
    """For each SM that no sampled launch ran on, one launch that did; `there` has a row for each launch."""
    other = there[:, ~there[sampled].any(axis=0) & there.any(axis=0)]
    return np.unique(len(there) - 1 - other[::-1].argmax(axis=0))


def _shared_clocks(lines: ClockLines, sms: int) -> Int64:
    """Label the SMs: those with equal labels had a common line in all launches that `lines` fitted."""
    label = np.zeros(sms, np.int64)
    used = 1
    launch = lines.unit >> UNIT_BITS
    for part in np.split(np.arange(len(launch)), np.flatnonzero(np.diff(launch)) + 1):
        sm, line = lines.unit[part] & (UNIT - 1), lines.first[part]
        for of in np.unique(label[sm]).tolist():
            inside = label[sm] == of
            distinct, which, count = np.unique(line[inside], return_inverse=True, return_counts=True)
            # The largest part keeps the label, and with it the SMs that this launch did not run on.
            fresh = np.arange(used, used + len(distinct))
            used += len(distinct)
            fresh[count.argmax()] = of
            label[sm[inside]] = fresh[which]
    return np.unique(label, return_inverse=True)[1]


def _one_line_per_clock(
    anchors: LaunchAnchors, units: Int64, label: Int64, mhz: float, timer: GlobalTimer
) -> tuple[ClockLines, Int64]:
    """The lines of the units whose anchors they explain, and the other launches."""
    labels = int(label.max()) + 1

    def clock_of(unit: Int64) -> Int64:
        clock: Int64 = (unit >> UNIT_BITS) * labels + label[unit & (UNIT - 1)]
        return clock

    known = np.zeros((int(units.max(initial=0)) >> UNIT_BITS) * labels + labels, bool)
    known[clock_of(units)] = True
    clocks, number = np.flatnonzero(known), np.cumsum(known) - 1
    line, member = number[clock_of(units)], number[clock_of(anchors.unit)]
    launch = clocks // labels
    seen = np.bincount(member, minlength=len(clocks)) > 0
    bad = np.zeros(int(launch.max(initial=0)) + 1, bool)
    bad[launch[~seen]] = True
    fitted = _straight(anchors, member, launch, ~bad[launch], mhz, timer)
    misfit = Anchors(anchors.clock, anchors.ns, timer, mhz).misfit(fitted.residual_ns, member, len(clocks))
    bad[launch[misfit > BENT]] = True
    good = np.flatnonzero(~bad[units >> UNIT_BITS])
    kept = ~bad[launch]
    place = np.cumsum(kept) - 1
    lines = ClockLines(
        unit=units[good],
        first=place[line[good]],
        count=np.ones(len(good), np.int64),
        knot_clock=fitted.knot_clock[kept],
        knot_ns=fitted.knot_ns[kept],
        slope=fitted.slope[kept],
        base_ns=timer.base_ns,
        residual_ns=fitted.residual_ns[kept[member]],
        step_ns=timer.step,
        method=fitted.method,
        slope_error=fitted.slope_error[kept],
        fastest_mhz=mhz,
    )
    return lines, np.flatnonzero(bad)


def _straight(
    anchors: LaunchAnchors, member: Int64, launch: Int64, fittable: Bool, mhz: float, timer: GlobalTimer
) -> ClockLines:
    """One line for each clock of each launch; zeros for launches with a clock without an anchor."""
    n = len(launch)
    line = np.zeros(n, np.int64)
    residual = np.zeros(len(member))
    columns = {name: np.zeros(n) for name in ("offset", "slope", "slope_error")}
    of = fittable[member]
    method = "none"
    if of.any():
        place = np.cumsum(fittable) - 1
        group = np.cumsum(np.diff(launch[fittable], prepend=launch[fittable][:1]) != 0)
        some = anchors if of.all() else anchors.take(of)
        found = Anchors(some.clock, some.ns, timer, mhz).lines(place[member[of]], group)
        line[fittable], method = found.origin, found.method
        residual[of] = np.abs(found.residual)
        for name, column in columns.items():
            column[fittable] = getattr(found, name)
    none = np.empty(0, np.int64)
    return ClockLines(
        none, none, none, line, columns["offset"], columns["slope"], timer.base_ns, residual, timer.step, method,
        columns["slope_error"], mhz,
    )  # fmt: skip


def _merged(parts: list[ClockLines]) -> ClockLines:
    """One fit of several that have no unit in common."""
    if len(parts) == 1:
        return parts[0]
    unit = np.concatenate([part.unit for part in parts])
    order = np.argsort(unit, kind="stable")
    before = np.cumsum([0] + [len(part.slope) for part in parts[:-1]])
    methods = {part.method for part in parts}
    known = [method for method in ("piecewise", "fitted", "nominal", "unknown") if method in methods]
    return ClockLines(
        unit=unit[order],
        first=np.concatenate([part.first + at for part, at in zip(parts, before.tolist(), strict=True)])[order],
        count=np.concatenate([part.count for part in parts])[order],
        knot_clock=np.concatenate([part.knot_clock for part in parts]),
        knot_ns=np.concatenate([part.knot_ns for part in parts]),
        slope=np.concatenate([part.slope for part in parts]),
        base_ns=parts[0].base_ns,
        residual_ns=np.concatenate([part.residual_ns for part in parts]),
        step_ns=parts[0].step_ns,
        method=known[0] if known else "none",
        slope_error=np.concatenate([part.slope_error for part in parts]),
        fastest_mhz=max(part.fastest_mhz for part in parts),
    )
