"""What changed between two traces, region by region, with confidence intervals."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from enum import Enum
from typing import Any, Protocol

import numpy as np

from warplens.analyse.lifetimes import Float, Lifetimes
from warplens.analyse.region_cells import TrackSums
from warplens.analyse.region_durations import RegionDurations
from warplens.analyse.region_purpose import Purpose, purpose_of
from warplens.analyse.region_sums import RegionSums
from warplens.analyse.resample import METRICS, TRIMMED, Interval, Sample, clusters_of, compare, interval_of_means
from warplens.analyse.row_pass import pass_over
from warplens.analyse.statistics import RegionStatistics, region_named, statistics
from warplens.errors import UsageError, WarplensError
from warplens.text import printable
from warplens.trace.model import Trace
from warplens.wording import duration

MARGIN = 0.02
CONFIDENCE = 0.99
_MIN_CHANGE_CYCLES = 2.0
_RESOLVED = 2.5
_OWN_UNIT = {Purpose.WORK: ("cycles",), Purpose.MEMORY: ("ns",)}
"""The unit in which a region's duration stays the same when only the clock rate changes."""


class ChangeVerdict(Enum):
    """FASTER and SLOWER are beyond the margin with confidence, in cycles and in ns; SAME is within it; NEW and GONE are
    regions of one trace only; UNSURE is everything that the noise leaves open."""

    FASTER = "FASTER"
    SLOWER = "SLOWER"
    SAME = "SAME"
    UNSURE = "UNSURE"
    NEW = "NEW"
    GONE = "GONE"


@dataclass(frozen=True)
class RegionChange:
    """One region. `before` and `after` are its statistics (None where it does not exist); `changes` the relative
    changes of `mean`, `p50`, `p95`, `p99` and the same with `_ns`, with intervals; `count_change` that of its number
    per launch; `explains` its share of the change of the kernel's warp time (None when that hardly changed)."""

    region: str
    kernel: str
    verdict: ChangeVerdict
    before: RegionStatistics | None
    after: RegionStatistics | None
    changes: Mapping[str, Interval]
    count_change: float
    explains: float | None
    note: str = ""


@dataclass(frozen=True)
class KernelChange:
    """A kernel's time per launch in ns, before and after."""

    kernel: str
    before_ns: float
    after_ns: float
    interval: Interval
    verdict: ChangeVerdict
    launches: tuple[int, int]
    mhz: tuple[float, float]


@dataclass(frozen=True, repr=False)
class Difference:
    """All kernels and regions of either trace. The overall verdict is the worst of any kernel or region."""

    kernels: tuple[KernelChange, ...]
    regions: tuple[RegionChange, ...]
    margin: float
    confidence: float

    def __iter__(self) -> Iterator[RegionChange]:
        return iter(self.regions)

    def __getitem__(self, region: str) -> RegionChange:
        return region_named(self.regions, region)

    @property
    def verdict(self) -> ChangeVerdict:
        seen = {one.verdict for one in self.kernels} | {one.verdict for one in self.regions}
        worst = [ChangeVerdict[name] for name in ("SLOWER", "FASTER", "UNSURE", "NEW", "GONE")]
        return next((verdict for verdict in worst if verdict in seen), ChangeVerdict.SAME)

    def __repr__(self) -> str:
        """One line per kernel and per region: the verdict, and the change of the mean."""
        lines = [
            f"{one.kernel}: {duration(one.before_ns)} -> {duration(one.after_ns)} {one.verdict.value}"
            for one in self.kernels
        ]
        for one in self.regions:
            change = one.changes.get("mean")
            lines.append(f"  {one.region}: {one.verdict.value}" + (f" {change.change:+.1%} cycles" if change else ""))
        return printable("\n".join(lines))

    def to_json(self) -> dict[str, Any]:
        return {"verdict": self.verdict.value, **_plain(asdict(self))}


def diff(before: Trace, after: Trace, *, margin: float = MARGIN, confidence: float = CONFIDENCE) -> Difference:
    """Compare two traces.

    A region is SLOWER or FASTER when its mean duration (or its mean without the longest outliers) changed by more than
    `margin` in cycles and in ns, with `confidence` shared among all regions, and by more than two cycles. Both units
    are needed: a different clock rate alone changes the ns of computation and the cycles of memory waits, and neither
    is caused by the code.
    """
    for name, one in (("before", before), ("after", after)):
        if not isinstance(one, Trace):
            raise UsageError(f"{name}={one!r}: expected a trace; wl.load(path) reads one")
    with ThreadPoolExecutor(2) as pool:
        old, new = pool.map(TraceSide, (before, after))
    return diff_sides(old, new, margin=margin, confidence=confidence)


class DiffSide(Protocol):
    """What a comparison needs of one of its two traces, for each kernel."""

    kernels: Sequence[str]
    real: bool
    """Whether its times are those of a GPU."""

    def durations(self, kernel: str) -> tuple[Float, Float]:
        """Each launch's duration in ns, and in cycles of the clock that its warps saw."""
        ...

    def rows(self, kernel: str) -> Mapping[str, RegionStatistics]:
        """The statistics of each region."""
        ...

    def samples(self, kernel: str) -> Mapping[str, Sample]:
        """Each region's measured spans with their clusters."""
        ...


def diff_sides(before: DiffSide, after: DiffSide, *, margin: float, confidence: float) -> Difference:
    """Compare what is known of two traces; see `diff`."""
    if not 0 < confidence < 1 or margin < 0:
        raise UsageError(
            f"margin={margin}, confidence={confidence}: margin must be at least 0, and confidence between 0 and 1"
        )
    pairs = _pairs(before, after)
    changes: list[RegionChange] = []
    kernels = []
    for old, new in pairs:
        inside = _regions(before, after, old, new, margin, confidence)
        kernels.append(_kernel(before, after, old, new, margin, confidence, inside))
        changes += inside
    order = sorted(changes, key=lambda one: -abs(one.explains or 0.0))
    return Difference(tuple(kernels), tuple(order), margin, confidence)


def _pairs(before: DiffSide, after: DiffSide) -> list[tuple[str, str]]:
    """Kernels of the same name; if both traces hold one kernel, the two are compared whatever their names."""
    old, new = list(before.kernels), list(after.kernels)
    if not old or not new:
        raise WarplensError(f"{'BEFORE' if not old else 'AFTER'} holds no spans, so there is nothing to compare")
    if len(old) == len(new) == 1:
        return [(old[0], new[0])]
    common = [(name, name) for name in old if name in new]
    if not common:
        raise WarplensError(
            f"the two traces have no kernel in common: A has {', '.join(old[:5])}, B has {', '.join(new[:5])}"
        )
    return common


def _kernel(
    before: DiffSide, after: DiffSide, old: str, new: str, margin: float, confidence: float, inside: list[RegionChange]
) -> KernelChange:
    ns, cycles = zip(before.durations(old), after.durations(new), strict=True)
    interval = interval_of_means(ns[0], ns[1], confidence)
    in_cycles = interval_of_means(cycles[0], cycles[1], confidence)
    verdict = _verdict([in_cycles, interval], margin)
    unchanged = all(one.verdict is ChangeVerdict.SAME and abs(one.count_change) < 1e-9 for one in inside)
    if verdict is ChangeVerdict.UNSURE and unchanged and in_cycles.low <= 0 <= in_cycles.high:
        verdict = ChangeVerdict.SAME  # no region changed, and the kernel's time differs by no more than its noise
    return KernelChange(
        kernel=new if old == new else f"{old} -> {new}",
        before_ns=float(ns[0].mean()),
        after_ns=float(ns[1].mean()),
        interval=interval,
        verdict=verdict,
        launches=(len(ns[0]), len(ns[1])),
        mhz=(float(1000 * cycles[0].sum() / ns[0].sum()), float(1000 * cycles[1].sum() / ns[1].sum())),
    )


def _regions(
    before: DiffSide, after: DiffSide, old: str, new: str, margin: float, confidence: float
) -> list[RegionChange]:
    sides = ((before, old), (after, new))
    with ThreadPoolExecutor(len(sides)) as pool:
        samples = list(pool.map(lambda one: one[0].samples(one[1]), sides))
    rows = [side.rows(name) for side, name in sides]
    launches = [len(side.durations(name)[0]) for side, name in sides]
    names = list(dict.fromkeys([*rows[0], *rows[1]]))
    shared = [name for name in names if name in samples[0] and name in samples[1]]
    # Bonferroni: each of many regions, tested by two means, gets its part of the allowed error.
    each = 1 - (1 - confidence) / max(2 * len(shared), 1)
    explained = _explained(rows, launches)
    real = [before.real, after.real]
    out = []
    for name in names:
        first, second = rows[0].get(name), rows[1].get(name)
        if first is None or second is None or name not in shared:
            verdict, note = ChangeVerdict.NEW if second is not None and second.count else ChangeVerdict.GONE, ""
            if first is not None and second is not None and not first.count and not second.count:
                verdict = ChangeVerdict.SAME if first == second else ChangeVerdict.UNSURE
                note = "it never ended in either trace"
            out.append(RegionChange(name, new, verdict, first, second, {}, 0.0, explained.get(name), note))
            continue
        found = compare(samples[0][name], samples[1][name], each)
        units = ("cycles", "ns") if all(real) else ("cycles",)
        own = _OWN_UNIT.get(purpose_of(name), units) if all(real) else units
        verdict = _judge(found, units, own, margin)
        note = ""
        if (
            verdict in (ChangeVerdict.FASTER, ChangeVerdict.SLOWER)
            and abs(second.mean - first.mean) <= _MIN_CHANGE_CYCLES
        ):
            verdict, note = ChangeVerdict.SAME, f"the change is at most {_MIN_CHANGE_CYCLES:.0f} cycles"
        if verdict is ChangeVerdict.UNSURE and first == second:
            verdict = ChangeVerdict.SAME  # every statistic is equal
        if verdict is ChangeVerdict.UNSURE:
            note = _why(found, margin)
        per_launch = [row.count / many for row, many in zip((first, second), launches, strict=True)]
        changes = {metric: found[metric, "cycles"] for metric in METRICS}
        changes |= {f"{metric}_ns": found[metric, "ns"] for metric in METRICS}
        count = per_launch[1] / per_launch[0] - 1
        out.append(RegionChange(name, new, verdict, first, second, changes, count, explained.get(name), note))
    return out


class TraceSide:
    """A trace in memory, as one side of a comparison."""

    def __init__(self, trace: Trace) -> None:
        self._trace, self._lives = trace, Lifetimes.of(trace)
        # What every comparison needs is read together.
        alone = len(trace.kernels) == 1 and RegionSums.answers(trace)
        pass_over(trace, TrackSums, RegionDurations, *([RegionSums] if alone else []))
        self.kernels: Sequence[str] = list(self._lives.kernels)
        self.real = all(info.clock == "gpu" for info in trace.meta.launches)
        self._rows: dict[str, dict[str, RegionStatistics]] = {}

    def durations(self, kernel: str) -> tuple[Float, Float]:
        lives = self._lives
        at = lives.kernels[kernel]
        ns = np.array([lives.launches[number].duration_ns for number in at], np.float64)
        lived, lived_ns = (
            np.bincount(lives.launch, weights=end - begin, minlength=len(lives.launches))[at]
            for begin, end in ((lives.begin, lives.finish), (lives.begin_ns, lives.finish_ns))
        )
        return ns, ns * lived / np.maximum(lived_ns, 1)

    def rows(self, kernel: str) -> Mapping[str, RegionStatistics]:
        if kernel not in self._rows:
            part = self._trace if len(self._trace.kernels) == 1 else self._trace.select(kernel=kernel)
            self._rows[kernel] = {row.region: row for row in statistics(part)}
        return self._rows[kernel]

    def samples(self, kernel: str) -> Mapping[str, Sample]:
        lives, known = self._lives, self.rows(kernel)
        cluster, clusters = clusters_of(lives, kernel)
        durations, tracks = pass_over(self._trace, RegionDurations), lives.tracks_of(kernel)
        parts = {name: list(durations.parts(lives.region_codes[name], tracks)) for name in known}
        return {name: Sample(known[name], found, cluster, clusters) for name, found in parts.items() if found}


def _judge(
    found: Mapping[tuple[str, str], Interval], units: tuple[str, ...], own: tuple[str, ...], margin: float
) -> ChangeVerdict:
    """Judge by the mean and by the trimmed mean: either may show a change, and both must agree on SAME."""
    plain, trimmed = (
        _verdict([found[metric, unit] for unit in units], margin, [found[metric, unit] for unit in own])
        for metric in ("mean", TRIMMED)
    )
    certain = [verdict for verdict in (trimmed, plain) if verdict in (ChangeVerdict.FASTER, ChangeVerdict.SLOWER)]
    if certain:
        return certain[0] if len(set(certain)) == 1 else ChangeVerdict.UNSURE
    doubt = all(found["mean", unit].low > 0 or found["mean", unit].high < 0 for unit in own)
    if trimmed is ChangeVerdict.SAME and (plain is ChangeVerdict.SAME or not doubt):
        return ChangeVerdict.SAME
    return plain


def _verdict(intervals: list[Interval], margin: float, own: list[Interval] | None = None) -> ChangeVerdict:
    """A change must show in every unit; for SAME, one of the region's own units is enough."""
    if all(one.low > margin for one in intervals):
        return ChangeVerdict.SLOWER
    if all(one.high < -margin for one in intervals):
        return ChangeVerdict.FASTER
    return ChangeVerdict.SAME if any(_within(one, margin) for one in own or intervals) else ChangeVerdict.UNSURE


def _within(one: Interval, margin: float) -> bool:
    """Whether the change is within the margin with confidence; without repetitions, the value alone decides."""
    wide = _RESOLVED * max(margin, 1e-3)
    return abs(one.change) <= margin and (not np.isfinite(one.low) or (one.low >= -wide and one.high <= wide))


def _why(found: Mapping[tuple[str, str], Interval], margin: float) -> str:
    cycles, ns = found["mean", "cycles"], found["mean", "ns"]
    if not np.isfinite(cycles.low):
        return "only one block: profile several launches or blocks to measure the noise"
    if (cycles.low > margin) != (ns.low > margin) or (cycles.high < -margin) != (ns.high < -margin):
        return "cycles and ns disagree: the clock rate changed between the two"
    return "the noise is as large as the change: profile more launches"


def _explained(rows: Sequence[Mapping[str, RegionStatistics]], launches: list[int]) -> dict[str, float | None]:
    """The change of each region's exclusive time per launch, as a share of the whole change."""
    own = [{name: row.exclusive_ns / launches[side] for name, row in rows[side].items()} for side in (0, 1)]
    names = {*own[0], *own[1]}
    change = {name: own[1].get(name, 0.0) - own[0].get(name, 0.0) for name in names}
    total = sum(change.values())
    if abs(total) < 0.005 * max(sum(own[0].values()), 1.0):
        return dict.fromkeys(names)
    return {name: value / total for name, value in change.items()}


def _plain(value: Any) -> Any:
    """Convert to JSON types: infinity becomes None and enums become their values."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and not np.isfinite(value):
        return None
    return value
