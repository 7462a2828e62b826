"""Compare two benchmark results case by case, taking the noise of their samples into account."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from warplens.analyse.per_kernel import plain
from warplens.analyse.resample import Interval, student
from warplens.bench.results import ResultRow, Results
from warplens.bench.sample_statistics import RESOLUTION_NS, Series, independent
from warplens.errors import UsageError, WarplensError

THRESHOLD = 0.05
CONFIDENCE = 0.99
VERDICTS = ("worse", "better", "unsure", "same", "new", "gone")
_CHUNKS, _MIN_SAMPLES = 16, 6
_MEDIAN_FACTOR = math.sqrt(math.pi / 2)
"""Standard error of a median relative to that of a mean, for normal samples."""
_CLOCK_CHANGE = 0.03
"""Note a change of the SM clock beyond this share."""
_MIN_INDEPENDENT = 1.25
"""Least number of independent samples to assume for a series that only drifts."""
_MAX_LOG_REACH = 20.0
"""Intervals wider than exp(this) are treated as infinite."""


@dataclass(frozen=True)
class CaseChange:
    """The change of one case. `interval` is the relative change of its median time, None if one side was not timed.

    - worse, better: the change exceeds the threshold and the noise; or the case stopped or started to work.
    - same: the whole interval lies within the threshold.
    - unsure: everything else.
    - new, gone: only one of the results contains this case.
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
    """The changes of all cases; `warnings` say what else differs between the two runs."""

    changes: tuple[CaseChange, ...]
    threshold: float
    confidence: float
    warnings: tuple[str, ...]

    def __iter__(self) -> Iterator[CaseChange]:
        return iter(self.changes)

    def having(self, verdict: str) -> list[CaseChange]:
        return [change for change in self.changes if change.verdict == verdict]

    @property
    def verdict(self) -> str:
        """The first verdict, in the order of VERDICTS, that any case has."""
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
    """Compare two results.

    `threshold` is the smallest relative change that counts as better or worse; `confidence` is for all cases together.
    """
    if not threshold > 0 or not 0 < confidence < 1:
        raise UsageError(
            f"threshold={threshold}, confidence={confidence}: expected a threshold above 0 and a confidence in 0..1"
        )
    old, new = ({_key(row): row for row in one.rows} for one in (before, after))
    shared = [key for key in old if key in new]
    if not shared:
        raise WarplensError("the two results have no case in common; there is nothing to compare")
    each = 1 - (1 - confidence) / len(shared)
    changes = []
    for key in dict.fromkeys([*old, *new]):
        if key in old and key in new:
            changes.append(_change(old[key], new[key], threshold, each))
        else:
            row = old.get(key) or new[key]
            was, now = (row.median_ns, None) if key in old else (None, row.median_ns)
            changes.append(CaseChange(row.benchmark, row.params, "gone" if key in old else "new", was, now, None))
    return Comparison(tuple(changes), threshold, confidence, tuple(_warnings(before, after)))


def _change(old: ResultRow, new: ResultRow, threshold: float, confidence: float) -> CaseChange:
    def made(verdict: str, interval: Interval | None = None, note: str = "") -> CaseChange:
        return CaseChange(new.benchmark, new.params, verdict, old.median_ns, new.median_ns, interval, note)

    if new.status != old.status and "skipped" in (old.status, new.status):
        return made("gone" if new.status == "skipped" else "new", None, new.note)
    if new.status != old.status and "ok" in (old.status, new.status):
        broken = new.status != "ok"
        note = f"{new.status} now: {new.note}" if broken else f"was {old.status}: {old.note}"
        return made("worse" if broken else "better", None, note)
    if not (old.timed and new.timed):
        return made("same", None, f"{new.status} before and after")
    if not (old.median_ns and new.median_ns):
        return made("unsure", None, "too short to measure: the median is 0 ns")
    interval = _interval(old, new, confidence)
    notes = []
    if old.clock_mhz and new.clock_mhz and abs(new.clock_mhz[1] - old.clock_mhz[1]) > _CLOCK_CHANGE * old.clock_mhz[1]:
        notes.append(f"SM clock {old.clock_mhz[1]:,.0f} -> {new.clock_mhz[1]:,.0f} MHz")
    verdict = _verdict(interval, threshold)
    if verdict == "unsure":
        notes.append(_why(interval, threshold))
    return made(verdict, interval, "; ".join(notes))


def _verdict(interval: Interval, threshold: float) -> str:
    if interval.low > 0 and interval.change > threshold:
        return "worse"
    # Symmetric in speed: twice as fast cancels twice as slow.
    if interval.high < 0 and interval.change < 1 / (1 + threshold) - 1:
        return "better"
    return "same" if interval.low >= -threshold and interval.high <= threshold else "unsure"


def _why(interval: Interval, threshold: float) -> str:
    if not math.isfinite(interval.high):
        return "too few samples to estimate the noise"
    if abs(interval.change) <= threshold:
        return "a change beyond the threshold cannot be ruled out; measure longer"
    return "the noise is as large as the change; measure longer"


def _interval(old: ResultRow, new: ResultRow, confidence: float) -> Interval:
    """Return Welch's interval for the ratio of the two medians.

    Neighbouring samples share their noise, so the interval uses the logarithms of the medians of chunks of each series.
    If the noise is correlated over more than a chunk, the chunks count as fewer independent samples.
    """
    assert old.median_ns
    assert new.median_ns
    change = math.log(new.median_ns / old.median_ns)
    fewest = min(len(old.series_ns), len(new.series_ns), _CHUNKS)
    if fewest and old.series_ns == new.series_ns:
        reach = 0.0  # the same run, or a clock without noise
    elif fewest < _MIN_SAMPLES:
        reach = math.inf
    else:
        parts = [_chunk_medians(old), _chunk_medians(new)]
        alone = [min(len(part), independent(row.series_ns)) for part, row in zip(parts, (old, new), strict=True)]
        # Changes slower than the whole series shift its mean but not its spread; subtract one sample for that.
        squares = [
            float(part.var()) / (max(count, _MIN_INDEPENDENT) - 1) for part, count in zip(parts, alone, strict=True)
        ]
        reach = _MEDIAN_FACTOR * student(confidence, max(int(min(alone)), 3) - 1) * math.sqrt(sum(squares))
    if reach > _MAX_LOG_REACH:
        reach = math.inf
    return Interval(*(math.exp(value) - 1 for value in (change, change - reach, change + reach)))


def _chunk_medians(row: ResultRow) -> Series:
    series = np.asarray(row.series_ns, float)
    medians = [np.median(part) for part in np.array_split(series, min(_CHUNKS, len(series)))]
    return np.log(np.maximum(medians, RESOLUTION_NS))


def _warnings(before: Results, after: Results) -> Iterator[str]:
    for name in ("device", "driver"):
        old, new = before.machine.get(name), after.machine.get(name)
        if old != new:
            yield f"{name} changed from {old or 'not recorded'} to {new or 'not recorded'}"
    olds, news = (one.machine.get("versions", {}) for one in (before, after))
    for name in sorted({*olds, *news}):
        if olds.get(name) != news.get(name):
            yield f"{name} changed from {olds.get(name, 'not installed')} to {news.get(name, 'not installed')}"
    for sweep in after.sweeps:
        was = next((one.method for one in before.sweeps if one.name == sweep.name), sweep.method)
        for name in ("timer", "cache"):
            if was.get(name) != sweep.method.get(name):
                yield f"{name} of {sweep.name} changed from {was.get(name)} to {sweep.method.get(name)}"
    for what, one in (("before", before), ("after", after)):
        if not one.complete:
            yield f"the run {what} was interrupted; some cases are missing"


def _key(row: ResultRow) -> str:
    return json.dumps([row.benchmark, row.params], sort_keys=True, default=str)
