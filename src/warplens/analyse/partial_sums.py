"""The partial result of one piece of a trace: what statistics need of its spans, values and instants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.partial_tables import Measure, PartialRows
from warplens.analyse.quantile_sketch import buckets_of, middles
from warplens.analyse.value_statistics import recorded_values
from warplens.trace.arrays import run_starts, string_array
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo

Int = npt.NDArray[Any]
CLUSTER = "cluster"
"""Group by the clusters of launches or blocks that confidence intervals are computed from."""
MAX_PARTIAL_CLUSTERS = 64
_DENSE = 1 << 22
"""Up to this many cells of a table, counting in an array is faster than sorting."""


@dataclass(frozen=True)
class Grouping:
    """Which cell a row belongs to.

    `variants` is the place of each launch's variant in the list of labels, and `split` says whether spans of different
    variants are kept apart. `clusters` has the cluster of each launch, and -1 for launches whose blocks are clusters.
    `extents` asks for the time from each track's first begin to its last end, where launches do not state it;
    `launches` asks which launches have rows, where only some rows are selected.
    """

    by: str = "region"
    variants: Mapping[tuple[int, int], int] = field(default_factory=dict)
    split: bool = True
    clusters: Mapping[tuple[int, int], int] = field(default_factory=dict)
    extents: bool = False
    launches: bool = False


def variant_places(launches: Sequence[LaunchInfo], *, merge: bool = False) -> dict[tuple[int, int], int]:
    """The place of each launch's variant in the list that `kernel_variants` gives."""
    found = kernel_variants(launches, merge=merge)
    return {(info.rank, info.launch): place for place, one in enumerate(found) for info in one.launches}


def launch_code(rank: Int, launch: Int) -> Int:
    """One number for a launch of a rank."""
    return rank << 32 | launch


def partial_sums(trace: Trace, grouping: Grouping) -> pa.Table:
    """The partial result of a piece of a trace; the piece holds whole tracks."""
    needed = ["region", "kind", "open", "dur_cycles", "dur_ns", "parent", "warp", "sm", "rank", "launch"]
    needed += [grouping.by] if grouping.by not in ("region", CLUSTER) else ["block"] if grouping.by == CLUSTER else []
    trace.prefetch(*dict.fromkeys(needed))
    spans, cells = trace.of_kind("span"), _Cells(trace, grouping)
    made = PartialRows()
    measured = spans & ~trace.numpy("open")
    _add_durations(made, cells, trace, measured, members=grouping.by != CLUSTER)
    unended = spans & ~measured
    if unended.any():
        made.add(Measure.OPEN, *_counted(cells.of(np.flatnonzero(unended))))
    if not spans.all():
        _add_marks(made, cells, trace)
    if grouping.extents:
        _add_extents(made, trace)
    if grouping.launches and len(trace):
        made.add(Measure.LAUNCH, np.zeros(len(cells.launches), np.int64), member=launch_code(*cells.launches.T))
    return made.table(cells.names)


class _Cells:
    """The cell of each row of a trace: a number that stands for its variant, group and region."""

    def __init__(self, trace: Trace, grouping: Grouping) -> None:
        codes, self.regions = trace.codes("region")
        rank, launch = (trace.numpy(name).astype(np.int64) for name in ("rank", "launch"))
        heads = run_starts(launch_code(rank, launch))
        self._runs = np.diff(np.append(heads, len(rank)))
        self.launches = np.stack([rank[heads], launch[heads]], axis=1)
        self._places = self._per_launch(grouping.variants)
        group, self.groups = self._group(trace, grouping)
        self._many = len(self.groups) * len(self.regions)
        self._code = (self._places if grouping.split else 0) * self._many + group * len(self.regions) + codes
        self._of_values = self._places * self._many + codes

    def of(self, rows: Int, *, values: bool = False) -> Int:
        """The cells of some rows; those of values and instants are always kept apart by variant, in one group."""
        return np.asarray((self._of_values if values else self._code)[rows])

    def names(self, cell: Int) -> tuple[Int, pa.Array, pa.Array]:
        """The variant, group and region of cells."""
        places = cell // self._many, cell % self._many // len(self.regions), cell % max(len(self.regions), 1)
        group, region = (
            string_array(list(map(str, names))).take(pa.array(at))
            for names, at in zip((self.groups, self.regions), places[1:], strict=True)
        )
        return places[0].astype(np.int32), group, region

    def _per_launch(self, known: Mapping[tuple[int, int], int]) -> Int:
        values = np.array([known.get((rank, launch), 0) for rank, launch in self.launches.tolist()], np.int64)
        return np.repeat(values, self._runs)

    def _group(self, trace: Trace, grouping: Grouping) -> tuple[Int, Sequence[Any]]:
        """The group of each row, and the names of groups; the first is that of what belongs to no group."""
        if grouping.by == "region":
            return np.zeros(len(trace), np.int64), [""]
        if grouping.by == "kernel":
            codes, names = trace.codes("kernel")
            return codes.astype(np.int64) + 1, ["", *names]
        values = trace.numpy(grouping.by) if grouping.by != CLUSTER else self._clusters(trace, grouping)
        found, codes = np.unique(values, return_inverse=True)
        return codes.reshape(-1).astype(np.int64) + 1, ["", *found.tolist()]

    def _clusters(self, trace: Trace, grouping: Grouping) -> Int:
        cluster = self._per_launch(grouping.clusters)
        # A few launches are too few clusters: their blocks are spread over the clusters instead.
        other = trace.numpy("block").astype(np.int64) + np.repeat(self.launches @ [31, 17], self._runs)
        return np.where(cluster < 0, other % MAX_PARTIAL_CLUSTERS, cluster)


def _add_durations(
    made: PartialRows, cells: _Cells, trace: Trace, measured: npt.NDArray[np.bool_], *, members: bool
) -> None:
    """Count, sums, squares, extremes, buckets and exclusive time of every cell, and its warps' and SMs' sums."""
    parent = trace.numpy("parent")
    rows = np.flatnonzero(measured)
    if not len(rows):
        return
    cell = cells.of(rows)
    order = np.argsort(cell.astype(np.uint16) if cell.max() < 1 << 16 else cell, kind="stable")
    rows, cell = rows[order], cell[order]
    starts = run_starts(cell)
    found, count = cell[starts], np.diff(np.append(starts, len(cell)))
    dense = np.repeat(np.arange(len(starts)), count)
    inside = np.flatnonzero(measured & (parent >= 0))
    for unit, own_unit, bucket_unit, name in (
        (Measure.CYCLES, Measure.OWN_CYCLES, Measure.CYCLES_BUCKET, "dur_cycles"),
        (Measure.NS, Measure.OWN_NS, Measure.NS_BUCKET, "dur_ns"),
    ):
        all_of_them = trace.numpy(name)
        durations = all_of_them[rows]
        made.add(
            unit,
            found,
            count,
            total=np.add.reduceat(durations, starts),
            squares=_squares(durations, starts),
            low=np.minimum.reduceat(durations, starts),
            high=np.maximum.reduceat(durations, starts),
        )
        inner = np.bincount(parent[inside], weights=all_of_them[inside], minlength=len(parent)).astype(np.int64)
        own = np.maximum(durations - inner[rows], 0)  # asynchronous children may outlive their parent
        made.add(own_unit, found, total=np.add.reduceat(own, starts))
        at, bucket, counts, _ = _crossed(dense, buckets_of(durations))
        made.add(bucket_unit, found[at], counts, member=bucket)
        if members and unit is Measure.CYCLES:
            for member, column in ((Measure.WARP, "warp"), (Measure.SM, "sm")):
                at, number, counts, total = _crossed(dense, trace.numpy(column)[rows].astype(np.int64), durations)
                made.add(member, found[at], counts, member=number, total=total)


def _squares(durations: Int, starts: Int) -> list[Decimal]:
    """The sum of the squares of each run, exactly: as products of limbs so short that no sum of them overflows."""
    bits = max((62 - len(durations).bit_length()) // 2, 1)
    limbs = [(durations >> at) & ((1 << bits) - 1) for at in range(0, max(int(durations.max()).bit_length(), 1), bits)]
    sums = [0] * len(starts)
    for first, one in enumerate(limbs):
        for second, other in enumerate(limbs[first:], first):
            weight = (1 if first == second else 2) << bits * (first + second)
            for at, value in enumerate(np.add.reduceat(one * other, starts).tolist()):
                sums[at] += weight * value
    return [Decimal(value) for value in sums]


def _add_marks(made: PartialRows, cells: _Cells, trace: Trace) -> None:
    """The values and instants that were recorded."""
    if len(instants := np.flatnonzero(trace.of_kind("instant"))):
        made.add(Measure.INSTANT, *_counted(cells.of(instants, values=True)))
    rows = recorded_values(trace)
    values = trace.numpy("value")[rows] if len(rows) else np.empty(0)
    finite = np.isfinite(values)
    if not finite.all():
        made.add(Measure.NOT_FINITE, *_counted(cells.of(rows[~finite], values=True)))
    rows, values = rows[finite], values[finite]
    if not len(rows):
        return
    cell, bucket = cells.of(rows, values=True), buckets_of(values)
    order = np.lexsort((bucket, cell))
    cell, bucket, values = cell[order], bucket[order], values[order]
    starts = np.union1d(run_starts(cell), run_starts(bucket))
    apart = values - middles(bucket, whole=False)
    made.add(
        Measure.VALUE_BUCKET,
        cell[starts],
        np.diff(np.append(starts, len(cell))),
        member=bucket[starts],
        real=np.add.reduceat(apart, starts),
        real_squares=np.add.reduceat(np.square(apart), starts),
    )
    starts = run_starts(cell)
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    made.add(Measure.VALUE, cell[starts], np.diff(np.append(starts, len(cell))), low=low, high=high)


def _add_extents(made: PartialRows, trace: Trace) -> None:
    heads = run_starts(trace.numpy("track"))
    for measure, start, lasted in (
        (Measure.EXTENT_CYCLES, "start_cycle", "dur_cycles"),
        (Measure.EXTENT_NS, "start_ns", "dur_ns"),
    ):
        begin = trace.numpy(start)
        if len(heads):
            last = np.maximum.reduceat(begin + trace.numpy(lasted), heads)
            lived = int((last - np.minimum.reduceat(begin, heads)).sum())
            made.add(measure, np.zeros(1, np.int64), total=np.array([lived]))


def _counted(cell: Int) -> tuple[Int, Int]:
    found, counts = np.unique(cell, return_counts=True)
    return found, counts


def _crossed(cell: Int, member: Int, amounts: Int | None = None) -> tuple[Int, Int, Int, Int | None]:
    """The pairs of a cell and a member that occur, how often, and the sum of their amounts."""
    low, dense = int(member.min()), None
    width = int(member.max()) - low + 1
    key = cell * width + (member - low)
    if (int(cell[-1]) + 1) * width > _DENSE:
        dense, key = np.unique(key, return_inverse=True)
    counts = np.bincount(key.reshape(-1))
    pairs = np.flatnonzero(counts)
    total = None if amounts is None else np.bincount(key.reshape(-1), weights=amounts)[pairs].astype(np.int64)
    named = pairs if dense is None else dense
    return named // width, named % width + low, counts[pairs], total
