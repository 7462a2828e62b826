"""Whether a benchmark got worse: two results, case by case, with what their samples' spread allows to say."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from warplens.analyse.per_kernel import plain
from warplens.analyse.resample import Interval, student
from warplens.bench.results import Results, Row
from warplens.bench.summary import RESOLUTION_NS, Series, independent
from warplens.errors import UsageError, WarplensError

THRESHOLD = 0.05
CONFIDENCE = 0.99
VERDICTS = ("worse", "better", "unsure", "same", "new", "gone")
_BLOCKS, _FEWEST = 16, 6
_MEDIAN = math.sqrt(math.pi / 2)
"""A median is less certain than a mean by this much, where the stretches are as short as one sample."""
_CLOCK = 0.03
_LEAST = 1.25
"""What a series counts for that is one slow drift: its spread still says how far it goes."""
_ENDLESS = 20.0
"""Beyond e to this times, an interval says nothing."""


@dataclass(frozen=True)
class Change:
    """One case. `interval` is the relative change of its median time (None where one side has no time).

    - worse, better: beyond the threshold, and the noise alone does not explain it; or it is not right any more.
    - same: the whole interval lies within the threshold. unsure: everything else.
    - new, gone: only one of the results has this case.
    """

    benchmark: str
    params: Mapping[str, Any]
    verdict: str
    before_ns: float | None
    after_ns: float | None
    interval: Interval | None
    note: str = ""

    @property
    def name(self) -> str:
        return f"{self.benchmark}({', '.join(f'{name}={value}' for name, value in self.params.items())})"


@dataclass(frozen=True)
class Comparison:
    """Every case of either results; `warnings` say what else differs between the two runs."""

    changes: tuple[Change, ...]
    threshold: float
    confidence: float
    warnings: tuple[str, ...]

    def __iter__(self) -> Iterator[Change]:
        return iter(self.changes)

    def having(self, verdict: str) -> list[Change]:
        return [change for change in self.changes if change.verdict == verdict]

    @property
    def verdict(self) -> str:
        """The first of worse, better, unsure, same that any case has."""
        seen = {change.verdict for change in self.changes}
        return next((verdict for verdict in VERDICTS if verdict in seen), "same")

    def to_json(self) -> dict[str, Any]:
        document: dict[str, Any] = plain(asdict(self))
        for change in document["changes"]:
            for end in ("low", "high"):
                if change["interval"] and not math.isfinite(change["interval"][end]):
                    change["interval"][end] = None
        return {"verdict": self.verdict, **document}


def compare(
    before: Results, after: Results, *, threshold: float = THRESHOLD, confidence: float = CONFIDENCE
) -> Comparison:
    """Compare two results: `threshold` is the change that matters, as a share; `confidence` holds for all cases."""
    if not threshold > 0 or not 0 < confidence < 1:
        raise UsageError(f"threshold={threshold}, confidence={confidence}: expected a share above 0 and one below 1")
    old, new = ({_key(row): row for row in one.rows} for one in (before, after))
    shared = [key for key in old if key in new]
    if not shared:
        raise WarplensError("the two results have no case in common: nothing to compare")
    each = 1 - (1 - confidence) / len(shared)
    changes = []
    for key in dict.fromkeys([*old, *new]):
        if key in old and key in new:
            changes.append(_change(old[key], new[key], threshold, each))
        else:
            row = old.get(key) or new[key]
            was, now = (row.median_ns, None) if key in old else (None, row.median_ns)
            changes.append(Change(row.benchmark, row.params, "gone" if key in old else "new", was, now, None))
    return Comparison(tuple(changes), threshold, confidence, tuple(_warnings(before, after)))


def _change(old: Row, new: Row, threshold: float, confidence: float) -> Change:
    def made(verdict: str, interval: Interval | None = None, note: str = "") -> Change:
        return Change(new.benchmark, new.params, verdict, old.median_ns, new.median_ns, interval, note)

    if new.status != old.status and "skipped" in (old.status, new.status):
        return made("gone" if new.status == "skipped" else "new", None, new.note)
    if new.status != old.status and "ok" in (old.status, new.status):
        broken = new.status != "ok"
        note = f"{new.status} now: {new.note}" if broken else f"was {old.status}: {old.note}"
        return made("worse" if broken else "better", None, note)
    if not (old.timed and new.timed):
        return made("same", None, f"{new.status} before and after")
    if not (old.median_ns and new.median_ns):
        return made("unsure", None, "too short for the clock: it shows 0 ns")
    interval = _interval(old, new, confidence)
    notes = []
    if old.clock_mhz and new.clock_mhz and abs(new.clock_mhz[1] - old.clock_mhz[1]) > _CLOCK * old.clock_mhz[1]:
        notes.append(f"SM clock {old.clock_mhz[1]:,.0f} -> {new.clock_mhz[1]:,.0f} MHz")
    verdict = _verdict(interval, threshold)
    if verdict == "unsure":
        notes.append(_why(interval, threshold))
    return made(verdict, interval, "; ".join(notes))


def _verdict(interval: Interval, threshold: float) -> str:
    if interval.low > 0 and interval.change > threshold:
        return "worse"
    # The same distance in speed: twice as slow undoes twice as fast.
    if interval.high < 0 and interval.change < 1 / (1 + threshold) - 1:
        return "better"
    return "same" if interval.low >= -threshold and interval.high <= threshold else "unsure"


def _why(interval: Interval, threshold: float) -> str:
    if not math.isfinite(interval.high):
        return "too few samples to know the noise"
    if abs(interval.change) <= threshold:
        return "a change beyond the threshold cannot be excluded: measure longer"
    return "the noise is as large as the change: measure longer"


def _interval(old: Row, new: Row, confidence: float) -> Interval:
    """By the medians of stretches of each series, since neighbouring samples share their noise: Welch's interval for
    the difference of their logarithms, around the ratio of the two medians. Where the noise outlasts a stretch, they
    count for fewer."""
    assert old.median_ns
    assert new.median_ns
    change = math.log(new.median_ns / old.median_ns)
    fewest = min(len(old.series_ns), len(new.series_ns), _BLOCKS)
    if fewest and old.series_ns == new.series_ns:
        reach = 0.0  # the same run, or a clock without noise
    elif fewest < _FEWEST:
        reach = math.inf
    else:
        parts = [_stretches(old), _stretches(new)]
        alone = [min(len(part), independent(row.series_ns)) for part, row in zip(parts, (old, new), strict=True)]
        # What moves slower than the series is long moves its mean, and is not in its spread: hence one less.
        squares = [float(part.var()) / (max(count, _LEAST) - 1) for part, count in zip(parts, alone, strict=True)]
        reach = _MEDIAN * student(confidence, max(int(min(alone)), 3) - 1) * math.sqrt(sum(squares))
    if reach > _ENDLESS:
        reach = math.inf
    return Interval(*(math.exp(value) - 1 for value in (change, change - reach, change + reach)))


def _stretches(row: Row) -> Series:
    series = np.asarray(row.series_ns, float)
    medians = [np.median(part) for part in np.array_split(series, min(_BLOCKS, len(series)))]
    return np.log(np.maximum(medians, RESOLUTION_NS))


def _warnings(before: Results, after: Results) -> Iterator[str]:
    for name in ("device", "driver"):
        old, new = before.machine.get(name), after.machine.get(name)
        if old != new:
            yield f"{name} was {old or 'not recorded'}, is {new or 'not recorded'}"
    olds, news = (one.machine.get("versions", {}) for one in (before, after))
    for name in sorted({*olds, *news}):
        if olds.get(name) != news.get(name):
            yield f"{name} was {olds.get(name, 'not installed')}, is {news.get(name, 'not installed')}"
    for sweep in after.sweeps:
        was = next((one.method for one in before.sweeps if one.name == sweep.name), sweep.method)
        for name in ("timer", "cache"):
            if was.get(name) != sweep.method.get(name):
                yield f"{sweep.name} was measured with {name} {was.get(name)}, is with {sweep.method.get(name)}"
    for what, one in (("before", before), ("after", after)):
        if not one.complete:
            yield f"the run {what} was interrupted: it has not all its cases"


def _key(row: Row) -> str:
    return json.dumps([row.benchmark, row.params], sort_keys=True, default=str)
