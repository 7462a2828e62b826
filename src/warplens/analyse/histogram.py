"""The distribution of each region's durations, in linear or logarithmic bins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.analyse.duration_counts import DurationCounts
from warplens.analyse.region_sums import MOST_GROUPS, RegionSums
from warplens.analyse.row_pass import pass_over
from warplens.trace.model import Trace

Array = npt.NDArray[Any]
BINS = 48
_LOG_FROM = 30.0
"""Ratio of longest to median from which bins are logarithmic: equal bins would put all but the tail into one."""


@dataclass(frozen=True)
class Histogram:
    """`counts[i]` spans lasted at least `edges[i]` and less than `edges[i + 1]` cycles (the last bin: at most)."""

    region: str
    edges: Sequence[float]
    counts: Sequence[int]
    scale: str

    @property
    def total(self) -> int:
        return sum(self.counts)


def histograms(*traces: Trace, bins: int = BINS) -> dict[str, list[Histogram | None]]:
    """Count each region's durations, one histogram per trace over common edges; None where a trace has no such span."""
    groups = [_durations(trace) for trace in traces]
    names = list(dict.fromkeys(name for group in groups for name in group))
    made: dict[str, list[Histogram | None]] = {}
    for name in names:
        found = [group.get(name) for group in groups]
        edges, scale = _edges(DurationCounts.joined([values for values in found if values is not None]), bins)
        made[name] = [None if values is None else _count(name, values, edges, scale) for values in found]
    return made


def durations(trace: Trace) -> dict[str, Array]:
    """The cycles of every closed span, by region, in the order of the trace's regions."""
    codes, names = trace.codes("region")
    at = np.flatnonzero(trace.of_kind("span") & ~trace.numpy("open"))
    order = at[np.argsort(codes[at], kind="stable")]
    cycles, code = trace.numpy("dur_cycles")[order], codes[order]
    cuts = np.flatnonzero(np.diff(code)) + 1
    return {names[code[part[0]]]: cycles[part] for part in np.split(np.arange(len(order)), cuts) if len(part)}


def _durations(trace: Trace) -> dict[str, DurationCounts]:
    """The same as counts, which take little memory."""
    if len(trace.regions) > MOST_GROUPS:
        return {name: DurationCounts.of(values) for name, values in durations(trace).items()}
    cycles = pass_over(trace, RegionSums).cycles
    made = {name: cycles.counts(code) for code, name in enumerate(trace.regions)}
    return {name: values for name, values in made.items() if values.count}


def _edges(values: DurationCounts, bins: int) -> tuple[Array, str]:
    """Bin edges from shortest to longest: equal steps of at least a cycle, or equal ratios for a long tail."""
    low, high = float(values.least), float(values.most)
    middle = max(values.percentiles([50])[0], 1.0)
    if high / middle >= _LOG_FROM and low >= 0:
        floor = max(low, 1.0)
        edges = np.unique(np.round(np.geomspace(floor, high + 1, bins + 1)))
        return (np.concatenate(([0.0], edges)) if low < 1 else edges), "log"
    count = int(min(bins, max(high - low + 1, 1)))
    step = max((high - low + 1) / count, 1.0)
    return low + step * np.arange(count + 1), "linear"


def _count(name: str, values: DurationCounts, edges: Array, scale: str) -> Histogram:
    return Histogram(name, tuple(edges.tolist()), tuple(values.histogram(edges).tolist()), scale)
