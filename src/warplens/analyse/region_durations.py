"""The durations of all spans, region by region: what a comparison draws its samples from.

They are put in order block by block of rows, in 32 bits where they fit, so that no other copy of them is in memory.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens import native
from warplens.trace.model import Trace
from warplens.trace.schema import KINDS

Array = npt.NDArray[Any]
Int = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
UNITS = ("cycles", "ns")


@dataclass(frozen=True)
class DurationPart:
    """Durations of one region in the order of rows. The first `counts[0]` are those of track `tracks[0]`, and so on."""

    values: Mapping[str, Array]
    tracks: Int
    counts: Int

    @property
    def ends(self) -> Int:
        """The end of each track's durations."""
        return np.cumsum(self.counts)

    def of(self, chosen: Mask) -> DurationPart:
        """Those of some tracks of the trace."""
        here = chosen[self.tracks]
        if here.all():
            return self
        rows = np.repeat(here, self.counts)
        values = {unit: durations[rows] for unit, durations in self.values.items()}
        return DurationPart(values, self.tracks[here], self.counts[here])


class RegionDurations:
    """The cycles and ns of each span that ended; of a trace in mode="aggregate", the means of each row."""

    def __init__(self, trace: Trace) -> None:
        self.columns = ("dur_cycles", "dur_ns", "region", "kind", "open", *(("count",) if trace.aggregated else ()))
        self._first, self._regions = trace.runs("track").starts, len(trace.regions)
        self._parts: list[list[DurationPart]] = [[] for _ in range(self._regions)]
        # Memory that is never written to costs nothing.
        self._room = {unit: np.empty(len(trace), np.int32) for unit in UNITS}

    def parts(self, region: int, tracks: Mask) -> Iterator[DurationPart]:
        """The durations of one region on some tracks, in the order of rows."""
        parts = (part.of(tracks) for part in self._parts[region])
        return (part for part in parts if len(part.tracks))

    def add(self, begin: int, end: int, block: Mapping[str, Array]) -> None:
        tracks = slice(*np.searchsorted(self._first, (begin, end)))
        start = np.append(self._first[tracks], end) - begin
        measured = (block["kind"] == KINDS.index("span")) & ~block["open"]
        durations = {"cycles": block["dur_cycles"], "ns": block["dur_ns"]}
        if "count" in block:  # the mean of each warp is one observation
            durations = {unit: values / block["count"] for unit, values in durations.items()}
        room = {unit: values[begin:end] for unit, values in self._room.items()}
        grouped = None if "count" in block else _in_c(start, block["region"], measured, durations, room, self._regions)
        values, region, track, count = grouped or _in_numpy(start, block["region"], measured, durations)
        ends, bounds = np.cumsum(count), np.searchsorted(region, np.arange(self._regions + 1))
        for code in np.flatnonzero(np.diff(bounds)).tolist():
            cells = slice(bounds[code], bounds[code + 1])
            rows = slice(ends[cells.start] - count[cells.start], ends[cells.stop - 1])
            here = {unit: each[rows] for unit, each in values.items()}
            self._parts[code].append(DurationPart(here, track[cells] + tracks.start, count[cells]))


_Grouped = tuple[Mapping[str, Array], Int, Int, Int]
"""Durations in the order of their regions; and for each region and track with any, both and how many there are."""


def _in_c(
    start: Int, region: Array, measured: Mask, durations: Mapping[str, Array], room: Mapping[str, Array], regions: int
) -> _Grouped | None:
    """`wl_group_durations` of native/group_durations.c; None where it does not apply."""
    library = native.load()
    if library is None:
        return None
    tracks = len(start) - 1
    count, following = np.empty((regions, tracks), np.int32), np.empty(regions, np.int64)
    arrays = [np.ascontiguousarray(array) for array in (start, region, measured, durations["cycles"], durations["ns"])]
    structure = [tracks, regions, *map(native.address, arrays)]
    library.wl_group_durations.restype = ctypes.c_int64
    total = library.wl_group_durations(
        (ctypes.c_int64 * len(structure))(*structure),
        *map(native.pointer, (room["cycles"], room["ns"], count, following)),
    )
    if total < 0:
        return None
    of, track = np.nonzero(count)
    return {unit: values[:total] for unit, values in room.items()}, of, track, count[of, track].astype(np.int64)


def _in_numpy(start: Int, region: Array, measured: Mask, durations: Mapping[str, Array]) -> _Grouped:
    rows = np.flatnonzero(measured)
    order = rows[np.argsort(region[rows], kind="stable")]
    tracks = max(len(start) - 1, 1)
    track = np.repeat(np.arange(len(start) - 1), np.diff(start))
    cells, count = np.unique(region[order].astype(np.int64) * tracks + track[order], return_counts=True)
    return {unit: values[order] for unit, values in durations.items()}, cells // tracks, cells % tracks, count
