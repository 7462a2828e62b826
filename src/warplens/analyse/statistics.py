"""Statistics of regions: counts, durations, shares and spreads, per region or in finer groups."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property, partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from warplens.analyse.duration_counts import DurationCounts, relative_range
from warplens.analyse.executions import Executions, counts
from warplens.analyse.kernel_variants import kernel_variants, variant_labels, variant_rows
from warplens.analyse.mark_cost import corrected_means
from warplens.analyse.region_purity import purity_by_region, region_purity
from warplens.analyse.region_sums import MOST_GROUPS, RegionSums
from warplens.analyse.row_pass import go_through, pass_over
from warplens.analyse.sample_share import sample_line
from warplens.analyse.stored_measures import Measures
from warplens.analyse.value_statistics import ValueStatistics, value_statistics
from warplens.errors import UsageError, check_name, did_you_mean
from warplens.text import printable
from warplens.trace.arrays import run_starts
from warplens.wording import integer, percent

if TYPE_CHECKING:
    import pandas

    from warplens.trace.model import Trace

GROUPS = ("region", "kernel", "sm", "warp", "block", "launch", "rank")
PERCENTILES = (50, 95, 99)
WITH_VARIANTS = ("region", "kernel")
"""Groups in which a row may hold several variants of a kernel."""
_SHOWN = ("mean", "p50", "p95", "p99", "min", "max", "total")

Int = npt.NDArray[Any]
T = TypeVar("T", bound=Any)


@dataclass(frozen=True)
class RegionStatistics:
    """Durations of one region (within one group). Plain names are cycles; `_ns` ones nanoseconds.

    `share` is a share of the lifetime of the kernel variant's warps; of all warps where rows are not of one variant. A
    region inside itself, as in recursion, counts with each instance, so that its share may exceed 1.
    Open spans, whose end was not recorded, are counted but not measured. The spreads are (largest - smallest) / mean of
    the mean duration per warp and per SM. `variant` is the label of the kernel's variant where the trace has several
    kernels or variants; empty otherwise.

    `purity` is the share of the instructions between the region's marks that belong to it, NaN where the machine code
    was not verified; `moved_out` says what was moved elsewhere if that is most of its work. `corrected` is the mean
    without the region's own marks, between `corrected_low` and `corrected_high`; NaN without a calibration.
    """

    group: str
    region: str
    count: int
    open: int
    total: int
    mean: float
    std: float
    p50: float
    p95: float
    p99: float
    min: int
    max: int
    share: float
    exclusive: int
    exclusive_share: float
    warp_spread: float
    sm_spread: float
    total_ns: int
    mean_ns: float
    std_ns: float
    p50_ns: float
    p95_ns: float
    p99_ns: float
    min_ns: int
    max_ns: int
    exclusive_ns: int
    variant: str = ""
    purity: float = math.nan
    moved_out: str = ""
    corrected: float = math.nan
    corrected_low: float = math.nan
    corrected_high: float = math.nan

    def to_json(self) -> dict[str, Any]:
        """All metrics; those that are not known are None."""
        return {name: None if value != value else value for name, value in asdict(self).items()}

    def __getitem__(self, metric: str) -> Any:
        """A metric by name; `p50_cycles` is another way to write `p50`."""
        name = metric.removesuffix("_cycles")
        if name not in METRICS:
            raise UsageError(f"no metric {metric!r}{did_you_mean(metric, METRICS)}")
        return getattr(self, name)


METRICS = tuple(field.name for field in fields(RegionStatistics))
NAMES = ("group", "region", "variant", "moved_out")
"""The metrics that are names, not numbers."""
UNKNOWN = ("purity", "corrected", "corrected_low", "corrected_high")
"""The metrics that need a verification or a calibration, NaN without."""


def region_named(rows: Iterable[T], region: str) -> T:
    """The first of some rows, each with the name of its region, that is of this region."""
    known: dict[str, T] = {row.region: row for row in reversed(list(rows))}
    check_name(f"no region named {region!r}", region, known)
    return known[region]


def by_group(row: RegionStatistics) -> tuple[int, str, str, int]:
    """Sort key that orders numeric groups by number."""
    return int(row.group) if row.group.isdigit() else 0, row.group, row.variant, -row.total


@dataclass(frozen=True, repr=False)
class Statistics:
    """The rows, largest total first, and the total that shares refer to. Prints as a table of cycles."""

    by: str
    rows: Sequence[RegionStatistics]
    busy_cycles: int
    busy_ns: int
    variants: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By label, where there are several: the kernel, what describes the variant, and its launches."""
    sample: str = ""
    """Which share of the blocks was recorded, where it is not all of them; and what mode="aggregate" means."""
    values: Sequence[ValueStatistics] = ()
    """The values and instants that were recorded, in every grouping the same."""
    quantile_error: float = 0.0
    """How far percentiles may be from the exact ones, as a share of them; 0 where they are exact."""

    @property
    def heading(self) -> str:
        """What the rows are grouped by besides the region; empty where that is nothing."""
        return self.by if self.by != "region" else "variant" if any(row.variant for row in self.rows) else ""

    @cached_property
    def _first_of(self) -> Mapping[str, RegionStatistics]:
        """By region, its first row."""
        return {row.region: row for row in reversed(self.rows)}

    def __iter__(self) -> Iterator[RegionStatistics]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __repr__(self) -> str:
        grouped = bool(self.heading)
        lines = [(*[self.heading] * grouped, "region", "count", "share", *_SHOWN)]
        for row in self.rows:
            numbers = (integer(row[name]) for name in _SHOWN)
            group = printable(row.variant or row.group)
            shown = f"{row.count:,}", percent(row.share), *numbers
            lines.append((*[group] * grouped, printable(row.region), *shown))
        columns = []
        for at, cells in enumerate(zip(*lines, strict=True)):
            wide = max(map(len, cells))
            columns.append([cell.ljust(wide) if at < 1 + grouped else cell.rjust(wide) for cell in cells])
        sample = [self.sample] if self.sample else []
        return "\n".join([*sample, *("  ".join(line) for line in zip(*columns, strict=True))])

    def __getitem__(self, region: str) -> RegionStatistics:
        """The row of a region (the first group's, when grouped)."""
        return self._first_of[region] if region in self._first_of else region_named(self.rows, region)

    def sorted(self, metric: str, *, descending: bool | None = None) -> Statistics:
        """The same rows in another order; by default numbers descend and names ascend."""
        name = check_metric(metric)
        down = name not in NAMES if descending is None else descending
        key = by_group if name == "group" else attrgetter(name)
        rows = sorted(self.rows, key=key, reverse=down)
        return replace(self, rows=tuple(rows))

    def to_json(self) -> dict[str, Any]:
        return {
            "by": self.by,
            "busy_cycles": self.busy_cycles,
            "busy_ns": self.busy_ns,
            "variants": {label: dict(known) for label, known in self.variants.items()},
            "sample": self.sample,
            "rows": [row.to_json() for row in self.rows],
            "values": [asdict(one) for one in self.values],
            "quantile_error": self.quantile_error,
        }

    def to_pandas(self) -> pandas.DataFrame:
        import pandas

        return pandas.DataFrame([asdict(row) for row in self.rows], columns=list(METRICS))


def check_group(by: str) -> None:
    check_name(f"cannot group by {by!r}", by, GROUPS)


def check_metric(metric: str) -> str:
    """The name of a metric; `p50_cycles` is another way to write `p50`."""
    name = metric.removesuffix("_cycles")
    if name not in METRICS:
        raise UsageError(f"cannot sort by {metric!r}{did_you_mean(metric, METRICS)}")
    return name


def statistics(
    trace: Trace, by: str = "region", *, merge_variants: bool = False, corrected: bool = False
) -> Statistics:
    """Compute the statistics of every region in each group of `by`: kernel, sm, warp, block, launch or rank.

    By region and by kernel, every variant of every kernel has rows of its own unless `merge_variants` is set: then by
    kernel those of a kernel are one, and by region those of all kernels. `corrected` also works out, by region, the
    means without the cost of marks, which takes longer than all the rest.
    """
    check_group(by)
    split = by in WITH_VARIANTS and not merge_variants
    labels = variant_labels(trace.meta.launches) if split else [""]
    kept = Measures.from_bytes(trace.kept_measures, len(trace), labels) if by == "region" and split else None
    measured, groups = (kept, [""]) if kept is not None else _measured(trace, by, labels)
    regions, measures, unended = measured.regions, measured.by_key, measured.unended
    many = len(regions) * len(labels)
    busy_cycles = sum(info.busy_cycles for info in trace.meta.launches) or _extent(trace, "start_cycle", "dur_cycles")
    busy_ns = sum(info.busy_ns for info in trace.meta.launches) or _extent(trace, "start_ns", "dur_ns")

    lifetimes = _lifetimes(trace, labels) if len(labels) > 1 else {}

    def name(value: int) -> dict[str, Any]:
        return {
            "group": "" if by == "region" else str(groups[value // many]),
            "region": regions[value % len(regions)],
            "variant": labels[value % many // len(regions)],
        }

    rows = []
    for value, measure in measures.items():
        lived = lifetimes.get(value % many // len(regions) if split else -1, busy_cycles)
        rows.append(
            RegionStatistics(
                **name(value),
                **measure,
                open=unended.get(value, 0),
                share=measure["total"] / lived if lived else 0.0,
                exclusive_share=measure["exclusive"] / lived if lived else 0.0,
            )
        )
    never = unended.keys() - measures.keys()
    rows += [never_ended(**name(value), unended=unended[value]) for value in sorted(never)]
    rows.sort(key=by_group)
    rows = with_trust(trace, rows, by, corrected=corrected and by == "region" and len(labels) == 1)
    known = kernel_variants(trace.meta.launches) if len(labels) > 1 else ()
    return Statistics(
        by,
        tuple(rows),
        int(busy_cycles),
        int(busy_ns),
        {one.label: one.to_json() for one in known},
        sample_line(trace.meta.launches),
        measured.values,
    )


def measures_to_keep(trace: Trace) -> bytes:
    """What the file of a trace keeps for its statistics by region; empty for spans that stand for many executions."""
    if trace.aggregated or not len(trace):
        return b""
    return _measured(trace, "region", variant_labels(trace.meta.launches))[0].to_bytes(len(trace))


def _measured(trace: Trace, by: str, labels: Sequence[str]) -> tuple[Measures, Sequence[Any]]:
    """Go through the rows of a trace: the measures of each region in each group, and the groups."""
    regions = trace.regions
    variant = variant_rows(trace) if len(labels) > 1 else np.zeros(0, np.int64)
    group, groups = _groups(trace, by)
    many = len(regions) * len(labels)
    few = many * len(groups) <= MOST_GROUPS and not trace.aggregated
    if few and by == "region" and len(labels) == 1:
        sums = pass_over(trace, RegionSums)
    else:
        trace.prefetch("region", "kind", "open")
        codes = trace.codes("region")[0]
        key = codes if by == "region" else group * many + codes
        key = key + variant * len(regions) if len(labels) > 1 else key
        if few:
            go_through(trace, sums := RegionSums(trace, key, many * len(groups)))
    if few:
        measures, unended = _of_few(sums, many * len(groups)), sums.unended
    else:
        spans, is_open = trace.of_kind("span"), trace.numpy("open")
        measures, unended = _of_many(trace, key, spans & ~is_open), np.bincount(key[spans & is_open], minlength=1)
    values = value_statistics(trace) if not few or sums.marks else ()
    return Measures(
        regions, labels, measures, {at: int(unended[at]) for at in np.flatnonzero(unended).tolist()}, values
    ), groups


def _of_few(sums: RegionSums, groups: int) -> dict[int, dict[str, Any]]:
    """By key, the measures of a few groups, which may have millions of spans each."""
    found = {}
    for group in range(groups):
        in_cycles, in_ns = (unit.counts(group) for unit in (sums.cycles, sums.ns))
        if not in_cycles.count:
            continue
        warp_spread, sm_spread = sums.spreads(group)
        found[group] = {
            "count": in_cycles.count,
            **_summary_of_counts(in_cycles),
            "exclusive": int(sums.cycles.exclusive[group]),
            "warp_spread": warp_spread,
            "sm_spread": sm_spread,
            **{f"{metric}_ns": amount for metric, amount in _summary_of_counts(in_ns).items()},
            "exclusive_ns": int(sums.ns.exclusive[group]),
        }
    return found


def _of_many(trace: Trace, key: Int, measured: npt.NDArray[np.bool_]) -> dict[int, dict[str, Any]]:
    """By key, the measures of any number of groups, and of spans that stand for many executions."""
    at = np.flatnonzero(measured)
    keys, order, bounds = _partition(key[at])
    cycles, ns, parent = trace.numpy("dur_cycles"), trace.numpy("dur_ns"), trace.numpy("parent")
    warp, sm = trace.numpy("warp")[at], trace.numpy("sm")[at]
    executions = Executions(trace) if trace.aggregated else None
    amount = counts(trace)

    def measures(number: int) -> dict[str, Any]:
        part = order[bounds[number] : bounds[number + 1]]
        rows_of = at[part]
        durations = cycles[rows_of]
        if executions is None:
            in_cycles, in_ns = _summary(durations), _summary(ns[rows_of])
        else:
            in_cycles, in_ns = executions.summary(rows_of, PERCENTILES)
        return {
            "count": int(amount[rows_of].sum()),
            **in_cycles,
            "exclusive": int(own_cycles[rows_of].sum()),
            "warp_spread": _spread(durations, warp[part], amount[rows_of]),
            "sm_spread": _spread(durations, sm[part], amount[rows_of]),
            **{f"{metric}_ns": amount for metric, amount in in_ns.items()},
            "exclusive_ns": int(own_ns[rows_of].sum()),
        }

    exclusive = partial(_exclusive, parent=parent, measured=measured)
    own_cycles, own_ns = _in_threads(exclusive, (cycles, ns), len(at))
    return dict(zip(keys.tolist(), _in_threads(measures, range(len(keys)), len(at)), strict=True))


def _in_threads(work: Callable[[Any], Any], items: Collection[Any], rows: int) -> Iterable[Any]:
    """Map in several threads where each item has many rows; to hand one to a thread takes longer than to sum a few."""
    threads = min(os.cpu_count() or 1, 8, rows // max(len(items), 1) >> 12)
    if threads < 2:
        return list(map(work, items))
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(work, items))


def with_trust(trace: Trace, rows: list[RegionStatistics], by: str, *, corrected: bool) -> list[RegionStatistics]:
    """The rows with what the machine code and the calibration say about them."""
    anywhere, means = purity_by_region(trace), corrected_means(trace) if corrected else {}
    within = region_purity(trace) if by == "kernel" and anywhere else {}
    made = []
    for row in rows:
        pure = within.get((row.group, row.region)) if within else anywhere.get(row.region)
        known: dict[str, Any] = {} if pure is None else {"purity": pure.purity, "moved_out": pure.flag}
        if row.region in means:
            mean = means[row.region]
            known |= {"corrected": mean.corrected, "corrected_low": mean.low, "corrected_high": mean.high}
        made.append(replace(row, **known) if known else row)
    return made


def _lifetimes(trace: Trace, labels: Sequence[str]) -> dict[int, int]:
    """The lifetime of the warps of each variant, by the place of its label."""
    places = {label: at for at, label in enumerate(labels)}
    return {
        places[one.label]: sum(info.busy_cycles for info in one.launches)
        for one in kernel_variants(trace.meta.launches)
        if one.label in places and any(info.busy_cycles for info in one.launches)
    }


def _groups(trace: Trace, by: str) -> tuple[Int, Sequence[Any]]:
    if by == "region":
        return np.zeros(0, np.int64), [""]
    if by == "kernel":
        codes, names = trace.codes("kernel")
        return codes.astype(np.int64), names
    values, codes = np.unique(trace.numpy(by), return_inverse=True)
    return codes.astype(np.int64), values.tolist()


def _partition(key: Int) -> tuple[Int, Int, Int]:
    """The distinct keys, an order that groups equal keys, and where each group begins in it."""
    small = key.astype(np.uint16) if len(key) and key.max() < 1 << 16 else key
    order = np.argsort(small, kind="stable")
    in_order = key[order]
    starts = run_starts(in_order)
    return in_order[starts], order, np.append(starts, len(key))


def _summary_of_counts(durations: DurationCounts) -> dict[str, Any]:
    spread = durations.percentiles(PERCENTILES)
    return summary(durations.total, durations.mean, durations.std(), spread, durations.least, durations.most)


def _summary(durations: Int) -> dict[str, Any]:
    spread = np.percentile(durations, PERCENTILES).tolist()
    mean, std = float(durations.mean()), float(durations.std())
    return summary(int(durations.sum()), mean, std, spread, int(durations.min()), int(durations.max()))


def summary(total: int, mean: float, std: float, percentiles: Iterable[float], least: int, most: int) -> dict[str, Any]:
    """What a row says of the durations in one unit, by metric."""
    known = {f"p{share}": value for share, value in zip(PERCENTILES, percentiles, strict=True)}
    return {"total": total, "mean": mean, "std": std, **known, "min": least, "max": most}


def _exclusive(durations: Int, parent: Int, measured: npt.NDArray[np.bool_]) -> Int:
    """Each span's time less that of its direct children; never negative, since asynchronous children may outlive it."""
    child = measured & (parent >= 0)
    inner = np.bincount(parent[child], weights=durations[child], minlength=len(durations))
    return np.asarray(np.maximum(durations - inner.astype(np.int64), 0))


def _extent(trace: Trace, start: str, lasted: str) -> int:
    """The sum of the tracks' extents, for traces without the lifetimes of warps."""
    if not len(trace):
        return 0
    begin, heads = trace.numpy(start), trace.runs("track").starts
    first, last = np.minimum.reduceat(begin, heads), np.maximum.reduceat(begin + trace.numpy(lasted), heads)
    return int((last - first).sum())


def _spread(durations: Int, member: Int, amount: Int) -> float:
    count = np.bincount(member, weights=amount)
    present = count > 0
    return relative_range(np.bincount(member, weights=durations)[present] / count[present])


def never_ended(group: str, region: str, variant: str, unended: int) -> RegionStatistics:
    zeros: dict[str, Any] = {name: 0 for name in METRICS if name not in (*NAMES, *UNKNOWN, "open")}
    return RegionStatistics(group=group, region=region, variant=variant, open=unended, **zeros)
