"""Conditions that fail a comparison: `load.p50:+5%`, `kernel.time:+2%`, `mma.mean:+40`, `load.p95:900`."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from warplens.analyse.diff import Difference
from warplens.analyse.statistics import METRICS, NAMES
from warplens.errors import UsageError, WarplensError, did_you_mean

_FORM = re.compile(r"^(?P<region>.+)\.(?P<metric>\w+):(?P<sign>[+-]?)(?P<number>\d+(?:\.\d+)?)(?P<unit>%?)$")
_NUMBERS = tuple(name for name in METRICS if name not in NAMES)
_KERNEL = "kernel"
_TIMES = ("time", "time_ns", "mean_ns")


@dataclass(frozen=True)
class Threshold:
    """A region's metric and its limit: relative (`+5%`), by an amount (`+40`), or an absolute value (`900`)."""

    text: str
    region: str
    metric: str
    sign: int
    number: float
    relative: bool

    @classmethod
    def parse(cls, text: str) -> Threshold:
        found = _FORM.match(text.strip())
        if not found:
            raise UsageError(f"--fail-on {text!r}: expected REGION.METRIC:LIMIT, such as load.p50:+5% or load.p95:900")
        metric = found["metric"].removesuffix("_cycles")
        region, relative = found["region"], bool(found["unit"])
        if metric not in _NUMBERS and not (region == _KERNEL and metric in _TIMES):
            raise UsageError(f"--fail-on {text!r}: no metric {found['metric']!r}{did_you_mean(metric, _NUMBERS)}")
        sign = {"+": 1, "-": -1, "": 0}[found["sign"]]
        if relative and not sign:
            raise UsageError(f"--fail-on {text!r}: write +{found['number']}% or -{found['number']}%")
        return cls(text, region, metric, sign, float(found["number"]), relative)

    def limit(self, before: float) -> float:
        """The limiting value."""
        step = before * self.number / 100 if self.relative else self.number
        return before + self.sign * step if self.sign else self.number


@dataclass(frozen=True)
class Crossing:
    """The outcome of a threshold. `crossed` requires the change to be significant, where its interval is known."""

    threshold: Threshold
    before: float
    after: float
    limit: float
    crossed: bool
    note: str = ""

    @property
    def text(self) -> str:
        bound = "at least" if self.threshold.sign < 0 else "at most"
        change = f"{_number(self.before)} -> {_number(self.after)}"
        return f"{self.threshold.text}: {change} (allowed: {bound} {_number(self.limit)}){self.note}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def check(difference: Difference, thresholds: list[Threshold]) -> tuple[Crossing, ...]:
    """Check a comparison against thresholds; a region that only one trace has is an error."""
    return tuple(_check(difference, one) for one in thresholds)


def _check(difference: Difference, one: Threshold) -> Crossing:
    known = {change.region: change for change in difference.regions}
    if one.region not in known:
        if one.region == _KERNEL and one.metric in _TIMES:
            kernel = max(difference.kernels, key=lambda each: each.after_ns)
            interval = kernel.interval
            return _decide(one, kernel.before_ns, kernel.after_ns, interval.low, interval.high)
        names = [*known, _KERNEL]
        raise UsageError(f"--fail-on {one.text!r}: no region named {one.region!r}{did_you_mean(one.region, names)}")
    if one.metric in ("time", "time_ns"):
        raise UsageError(f"--fail-on {one.text!r}: no metric {one.metric!r}{did_you_mean(one.metric, _NUMBERS)}")
    change = known[one.region]
    if change.before is None or change.after is None:
        where = "AFTER" if change.after is None else "BEFORE"
        raise WarplensError(
            f"--fail-on {one.text!r}: region {one.region!r} is not in {where}, so it cannot be compared"
        )
    before, after = float(change.before[one.metric]), float(change.after[one.metric])
    found = change.changes.get(one.metric)
    low, high = (found.low, found.high) if found else (-math.inf, math.inf)
    return _decide(one, before, after, low, high)


def _decide(one: Threshold, before: float, after: float, low: float, high: float) -> Crossing:
    limit = one.limit(before)
    down = one.sign < 0
    passed = after < limit if down else after > limit
    known = math.isfinite(low) and math.isfinite(high)
    certain = not known or (high < 0 if down else low > 0) or not one.sign
    note = "" if not passed or certain else "; not counted: the change is within the noise"
    return Crossing(one, before, after, limit, bool(passed and certain), note)
