"""Statistics of regions from merged partial results, for traces that no machine's memory holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.analyse.duration_counts import relative_range
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.partial_sums import Grouping, variant_places
from warplens.analyse.partial_tables import Measure
from warplens.analyse.quantile_sketch import ERROR, middles, quantiles
from warplens.analyse.sample_share import sample_line
from warplens.analyse.statistics import (
    GROUPS,
    PERCENTILES,
    WITH_VARIANTS,
    RegionStatistics,
    Statistics,
    by_group,
    never_ended,
    summary,
    with_trust,
)
from warplens.analyse.value_statistics import ValueStatistics
from warplens.errors import check_name
from warplens.trace.model import Trace, empty_table
from warplens.trace.schema import Meta

Array = npt.NDArray[Any]
_SHARES = tuple(share / 100 for share in PERCENTILES)


@dataclass(frozen=True)
class Cell:
    """The rows of one variant, group and region in a merged table, by measure."""

    variant: int
    group: str
    region: str
    rows: Mapping[Measure, slice]
    columns: Mapping[str, Array]

    def column(self, measure: Measure, name: str) -> Array:
        """A column of one measure, in the order of its members."""
        return self.columns[name][self.rows.get(measure, slice(0, 0))]

    def number(self, measure: Measure, name: str) -> int:
        """The one number of a measure without members; 0 where there is none."""
        found = self.column(measure, name)
        return int(found[0]) if len(found) else 0


def cells_of(partials: pa.Table) -> Iterator[Cell]:
    """The cells of a merged table, in order."""
    keys = ("variant", "group", "region", "measure", "member")
    table = partials.sort_by([(name, "ascending") for name in keys])
    columns = {
        name: table[name].to_numpy() for name in table.column_names if name not in ("group", "region", "squares")
    } | {name: np.array(table[name].to_pylist(), object) for name in ("group", "region", "squares")}
    heads = np.zeros(table.num_rows, bool)
    heads[:1] = True
    for name in keys[:4]:
        heads[1:] |= columns[name][1:] != columns[name][:-1]
    starts = np.append(np.flatnonzero(heads), table.num_rows).tolist()
    found: dict[tuple[int, str, str], dict[Measure, slice]] = {}
    for begin, end in pairwise(starts):
        key = int(columns["variant"][begin]), str(columns["group"][begin]), str(columns["region"][begin])
        found.setdefault(key, {})[Measure(int(columns["measure"][begin]))] = slice(begin, end)
    for (variant, group, region), rows in found.items():
        yield Cell(variant, group, region, rows, columns)


def grouping_of(meta: Meta, by: str, *, merge_variants: bool = False, selected: bool = False) -> Grouping:
    """What `partial_sums` has to keep apart for the statistics by a group."""
    check_name(f"cannot group by {by!r}", by, GROUPS)
    return Grouping(
        by=by,
        variants=variant_places(meta.launches),
        split=by in WITH_VARIANTS and not merge_variants,
        extents=not any(info.busy_cycles for info in meta.launches),
        launches=selected,
    )


def _with_rows(cells: Sequence[Cell], meta: Meta) -> Meta:
    """The document with only the launches that have rows."""
    codes = {code for cell in cells for code in cell.column(Measure.LAUNCH, "member").tolist()}
    kept = tuple(info for info in meta.launches if info.rank << 32 | info.launch in codes)
    return replace(meta, launches=kept)


def statistics_of(partials: pa.Table, meta: Meta, grouping: Grouping) -> Statistics:
    """The statistics that a merged table holds; percentiles are within `quantile_error` of the exact ones."""
    cells = list(cells_of(partials))
    meta = _with_rows(cells, meta) if grouping.launches else meta
    variants = kernel_variants(meta.launches)
    label = {grouping.variants[one.launches[0].rank, one.launches[0].launch]: one.label for one in variants}
    busy = {unit: sum(getattr(info, unit) for info in meta.launches) for unit in ("busy_cycles", "busy_ns")}
    for unit, extent in (("busy_cycles", Measure.EXTENT_CYCLES), ("busy_ns", Measure.EXTENT_NS)):
        busy[unit] = busy[unit] or sum(cell.number(extent, "total") for cell in cells)
    several = grouping.split and len(variants) > 1
    lifetimes = {one.label: sum(info.busy_cycles for info in one.launches) for one in variants}
    rows = []
    for cell in cells:
        name = {"group": cell.group, "region": cell.region, "variant": label.get(cell.variant, "") if several else ""}
        unended = cell.number(Measure.OPEN, "count")
        if Measure.CYCLES in cell.rows:
            lived = lifetimes.get(name["variant"]) or busy["busy_cycles"]
            rows.append(region_statistics(cell, name, lived, unended))
        elif unended:
            rows.append(never_ended(**name, unended=unended))
    rows.sort(key=by_group)
    return Statistics(
        grouping.by,
        tuple(with_trust(Trace(empty_table(), meta), rows, grouping.by, corrected=False)),
        busy["busy_cycles"],
        busy["busy_ns"],
        {one.label: one.to_json() for one in variants} if several else {},
        sample_line(meta.launches),
        _values(cells, label),
        quantile_error=ERROR,
    )


def region_statistics(cell: Cell, name: Mapping[str, Any], lived: int, unended: int = 0) -> RegionStatistics:
    """The row of one cell."""
    own, own_ns = (cell.number(unit, "total") for unit in (Measure.OWN_CYCLES, Measure.OWN_NS))
    cycles = _summary(cell, Measure.CYCLES, Measure.CYCLES_BUCKET)
    ns = _summary(cell, Measure.NS, Measure.NS_BUCKET)
    return RegionStatistics(
        **name,
        count=cell.number(Measure.CYCLES, "count"),
        open=unended,
        **cycles,
        share=cycles["total"] / lived if lived else 0.0,
        exclusive=own,
        exclusive_share=own / lived if lived else 0.0,
        warp_spread=_spread(cell, Measure.WARP),
        sm_spread=_spread(cell, Measure.SM),
        **{f"{metric}_ns": amount for metric, amount in ns.items()},
        exclusive_ns=own_ns,
    )


def _summary(cell: Cell, unit: Measure, bucket: Measure) -> dict[str, Any]:
    count, total, low, high = (cell.number(unit, name) for name in ("count", "total", "low", "high"))
    squares = int(cell.column(unit, "squares")[0])
    spread = quantiles(cell.column(bucket, "member"), cell.column(bucket, "count"), _SHARES, low, high)
    std = math.sqrt((count * squares - total * total) / count**2)  # in whole numbers, where nothing cancels
    return summary(total, total / count, std, spread, low, high)


def _spread(cell: Cell, member: Measure) -> float:
    """(largest - smallest) / mean of the mean duration of each warp or SM."""
    counts = cell.column(member, "count")
    if not len(counts):
        return 0.0
    return relative_range(cell.column(member, "total") / counts)


def _values(cells: Sequence[Cell], labels: Mapping[int, str]) -> tuple[ValueStatistics, ...]:
    """The values and instants, in the order of the variants, the most frequent first."""
    found = []
    for cell in cells:
        label = labels.get(cell.variant, "")
        if passes := cell.number(Measure.INSTANT, "count"):
            found.append(ValueStatistics(label, cell.region, "instant", passes))
        known, lost = (cell.number(kind, "count") for kind in (Measure.VALUE, Measure.NOT_FINITE))
        if known:
            found.append(_value(cell, label, known, lost))
        elif lost:
            found.append(ValueStatistics(label, cell.region, "value", lost, lost))
    order = {label: place for place, label in enumerate(labels.values())}
    return tuple(sorted(found, key=lambda one: (order.get(one.kernel, 0), -one.count)))


def _value(cell: Cell, label: str, known: int, lost: int) -> ValueStatistics:
    counts, buckets = (cell.column(Measure.VALUE_BUCKET, name) for name in ("count", "member"))
    middle, apart = middles(buckets, whole=False), cell.column(Measure.VALUE_BUCKET, "real")
    low, high = (float(cell.column(Measure.VALUE, name)[0]) for name in ("low", "high"))
    mean = float((counts * middle + apart).sum() / known)
    from_mean = middle - mean
    squares = cell.column(Measure.VALUE_BUCKET, "real_squares") + 2 * from_mean * apart + counts * from_mean**2
    return ValueStatistics(
        label,
        cell.region,
        "value",
        count=known + lost,
        not_finite=lost,
        mean=mean,
        std=math.sqrt(max(float(squares.sum()) / known, 0.0)),
        p50=quantiles(buckets, counts, (0.5,), low, high, whole=False)[0],
        min=low,
        max=high,
    )
