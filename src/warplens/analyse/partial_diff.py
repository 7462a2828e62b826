"""One side of a comparison from merged partial results, for datasets that no machine's memory holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import pyarrow as pa

from warplens.analyse.lifetimes import Array, Float, Int
from warplens.analyse.partial_statistics import Cell, cells_of, region_statistics
from warplens.analyse.partial_sums import CLUSTER, MAX_PARTIAL_CLUSTERS, Grouping, variant_places
from warplens.analyse.partial_tables import Measure, merge_partials
from warplens.analyse.quantile_sketch import middles
from warplens.analyse.resample import MIN_LAUNCHES, Sample
from warplens.analyse.statistics import RegionStatistics, never_ended
from warplens.trace.schema import LaunchInfo, Meta

_UNITS = {"cycles": (Measure.CYCLES, Measure.CYCLES_BUCKET), "ns": (Measure.NS, Measure.NS_BUCKET)}
_MOST_DRAWN = 100_000


def diff_grouping(meta: Meta) -> Grouping:
    """What `partial_sums` has to keep apart for a comparison: kernels, and clusters of launches or of blocks."""
    clusters: dict[tuple[int, int], int] = {}
    for infos in _launches(meta).values():
        enough = len(infos) >= MIN_LAUNCHES
        for number, info in enumerate(infos):
            clusters[info.rank, info.launch] = number % MAX_PARTIAL_CLUSTERS if enough else -1
    return Grouping(by=CLUSTER, variants=variant_places(meta.launches, merge=True), clusters=clusters)


def _launches(meta: Meta) -> dict[str, list[LaunchInfo]]:
    found: dict[str, list[LaunchInfo]] = {}
    for info in meta.launches:
        found.setdefault(info.kernel, []).append(info)
    return found


class PartialSide:
    """A dataset of which only partial results by `diff_grouping` are known."""

    def __init__(self, partials: pa.Table, meta: Meta) -> None:
        self._launches = _launches(meta)
        self._partials = partials
        self._cells: dict[str, dict[str, list[Cell]]] = {}
        names = list(self._launches)
        for cell in cells_of(partials):
            if Measure.CYCLES in cell.rows:
                self._cells.setdefault(names[cell.variant], {}).setdefault(cell.region, []).append(cell)
        self.kernels: Sequence[str] = [kernel for kernel in names if kernel in self._cells]
        self.real = all(info.clock == "gpu" for info in meta.launches)

    def durations(self, kernel: str) -> tuple[Float, Float]:
        infos = self._launches[kernel]
        ns = np.array([max(info.end_ns - info.begin_ns, 1) for info in infos], np.float64)
        lived = np.array([(info.busy_cycles, info.busy_ns) for info in infos], np.float64)
        return ns, ns * np.where(lived[:, 1] > 0, lived[:, 0], self._rate(kernel)) / np.maximum(lived[:, 1], 1)

    def _rate(self, kernel: str) -> float:
        """Cycles per ns of all spans, for launches that do not state the lifetime of their warps."""
        rows = self.rows(kernel).values()
        return sum(row.total for row in rows) / max(sum(row.total_ns for row in rows), 1)

    def rows(self, kernel: str) -> Mapping[str, RegionStatistics]:
        return self._rows[kernel]

    @cached_property
    def _rows(self) -> dict[str, dict[str, RegionStatistics]]:
        """The statistics of each region of each kernel, over all clusters."""
        at = self._partials.schema.get_field_index("group")
        whole = merge_partials([self._partials.set_column(at, "group", pa.repeat("", self._partials.num_rows))])
        names = list(self._launches)
        found: dict[str, dict[str, RegionStatistics]] = {}
        for cell in cells_of(whole):
            kernel = names[cell.variant]
            lived = sum(info.busy_cycles for info in self._launches[kernel])
            name = {"group": "", "region": cell.region, "variant": ""}
            unended = cell.number(Measure.OPEN, "count")
            if Measure.CYCLES in cell.rows:
                found.setdefault(kernel, {})[cell.region] = region_statistics(cell, name, lived, unended)
            elif unended:
                found.setdefault(kernel, {})[cell.region] = never_ended(**name, unended=unended)
        return found

    def samples(self, kernel: str) -> Mapping[str, Sample]:
        return {region: SketchSample(self.rows(kernel)[region], cells) for region, cells in self._cells[kernel].items()}


class SketchSample(Sample):
    """The spans of one region of which each cluster has counts, sums and the buckets of a quantile sketch."""

    def __init__(self, row: RegionStatistics, cells: Sequence[Cell]) -> None:
        self.row, self.clusters, self.present = row, len(cells), len(cells)
        self.count = np.array([cell.number(Measure.CYCLES, "count") for cell in cells])
        self._sums = {
            unit: np.array([cell.number(total, "total") for cell in cells], np.float64)
            for unit, (total, _) in _UNITS.items()
        }
        self._buckets = {unit: _buckets(cells, bucket) for unit, (_, bucket) in _UNITS.items()}

    def subsample(self, unit: str) -> Array:
        """Middles of buckets in the proportion of their counts."""
        _, middle, counts = self._buckets[unit]
        order = np.argsort(middle, kind="stable")
        upto = np.cumsum(counts[order])
        drawn = np.linspace(0, upto[-1] - 1, min(int(upto[-1]), _MOST_DRAWN)).astype(np.int64)
        return middle[order][np.searchsorted(upto, drawn, side="right")]

    def totals(self, unit: str, cap: float = np.inf) -> Float:
        """Sums are exact; what a cap cuts off comes from the middles of the buckets above it."""
        cluster, middle, counts = self._buckets[unit]
        above = np.maximum(middle - cap, 0) * counts
        return np.asarray(self._sums[unit] - np.bincount(cluster, weights=above, minlength=self.clusters))

    def histogram(self, unit: str, edges: Float) -> Array:
        cluster, middle, counts = self._buckets[unit]
        bins = len(edges) - 1
        at = np.clip(np.searchsorted(edges, middle, side="right") - 1, 0, bins - 1)
        found = np.bincount(cluster * bins + at, weights=counts, minlength=self.clusters * bins)
        return found.reshape(self.clusters, bins)


def _buckets(cells: Sequence[Cell], bucket: Measure) -> tuple[Int, Float, Int]:
    """The cluster, the middle and the count of every bucket."""
    members = [cell.column(bucket, "member") for cell in cells]
    cluster = np.repeat(np.arange(len(cells)), [len(one) for one in members])
    counts = np.concatenate([cell.column(bucket, "count") for cell in cells])
    return cluster, middles(np.concatenate(members), whole=True), counts
