"""The durations of a few groups of spans, added up block by block of rows.

A trace of millions of spans is gone through in blocks that fit a processor's cache, so that no array is as long as the
trace. Blocks hold whole tracks, as parents are rows of the same track.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens import native
from warplens.analyse.duration_counts import DurationCounts, relative_range
from warplens.trace.model import Trace
from warplens.trace.schema import KINDS

Int = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
MOST_GROUPS = 64
"""Groups at most: each has a row in tables of the warps and SMs."""
_WIDTH = 1 << 16
"""Durations below this are counted; longer ones are kept."""
_SPAN = KINDS.index("span")


@dataclass(frozen=True)
class _Rows:
    """What one block of rows has: group, whether it is a span that ended, parent, and the first row of each track."""

    first: int
    key: npt.NDArray[np.int32]
    measured: Mask
    parent: npt.NDArray[np.int32]
    track_start: npt.NDArray[np.int64]


class RegionSums:
    """The durations of each group in cycles and ns, and the spread of its mean over warps and SMs.

    `key` is the group of each row of the trace; without it, the groups are the regions.
    """

    def __init__(self, trace: Trace, key: Int | None = None, groups: int | None = None) -> None:
        groups = len(trace.regions) if groups is None else groups
        self.columns = ("dur_cycles", "dur_ns", "parent", "kind", "open", *(("region",) if key is None else ()))
        self.cycles, self.ns = _Unit(groups), _Unit(groups)
        self.unended = np.zeros(groups, np.int64)
        """The spans of each group that did not end."""
        self.marks = 0
        """Rows that are instants or values."""
        self._key, self._tracks = key, trace.runs("track").starts
        self._warp, self._sm = (np.asarray(trace.at(name, self._tracks), np.int64) for name in ("warp", "sm"))
        self._by_warp, self._by_sm = _Members(groups, self._warp), _Members(groups, self._sm)

    def add(self, begin: int, end: int, block: Mapping[str, Int]) -> None:
        """Add some rows."""
        of = slice(*np.searchsorted(self._tracks, (begin, end)))
        key = block["region"] if self._key is None else self._key[begin:end]
        is_span = block["kind"] == _SPAN
        measured = is_span & ~block["open"]
        self.marks += end - begin - int(np.count_nonzero(is_span))
        if int(np.count_nonzero(measured)) != int(np.count_nonzero(is_span)):
            self.unended += np.bincount(key[is_span & ~measured], minlength=len(self.unended))
        rows = _Rows(
            begin,
            np.ascontiguousarray(key, np.int32),
            measured,
            block["parent"],
            np.append(self._tracks[of], end) - begin,
        )
        count, total = self.cycles.add(rows, block["dur_cycles"])
        self.ns.add(rows, block["dur_ns"])
        self._by_warp.add(self._warp[of], count, total)
        self._by_sm.add(self._sm[of], count, total)

    @staticmethod
    def answers(trace: Trace) -> bool:
        """Whether the regions of a trace are few enough, and one row is one execution."""
        return len(trace.regions) <= MOST_GROUPS and not trace.aggregated

    def spreads(self, group: int) -> tuple[float, float]:
        """(largest - smallest) / mean of the group's mean duration per warp, and per SM."""
        return self._by_warp.spread(group), self._by_sm.spread(group)


class _Unit:
    """Durations of each group in one unit."""

    def __init__(self, groups: int) -> None:
        self.exclusive = np.zeros(groups, np.int64)
        self._shares = np.zeros((groups, _WIDTH), np.int64)
        self._longer: list[list[Int]] = [[] for _ in range(groups)]
        self._room = np.empty((3, 0), np.int64)
        self._upto = 0
        """All durations so far are below it."""

    def counts(self, group: int) -> DurationCounts:
        return DurationCounts(self._shares[group, : self._upto], self._longer[group])

    def add(self, rows: _Rows, durations: Int) -> tuple[Int, Int]:
        """Add some rows, and return the count and the total of each group on each track."""
        library = native.load()
        self._upto = max(self._upto, int(durations.max(initial=0)) + 1)
        shape = len(self.exclusive), len(rows.track_start) - 1
        count, total = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        if library is None:
            longer, of = self._add(rows, durations, count, total)
        else:
            longer, of = self._add_native(library, rows, durations, count, total)
        for group in np.flatnonzero(np.bincount(of)).tolist():
            self._longer[group].append(longer[of == group])
        return count, total

    def _add_native(self, library: ctypes.CDLL, rows: _Rows, durations: Int, count: Int, total: Int) -> tuple[Int, Int]:
        if self._room.shape[1] < len(durations):
            self._room = np.empty((3, len(durations)), np.int64)
        inner, longer, of = self._room[0], self._room[1], self._room[2].view(np.int32)
        durations = np.ascontiguousarray(durations)
        measured, parent = np.ascontiguousarray(rows.measured), np.ascontiguousarray(rows.parent)
        block = _SummedRows(
            *(len(durations), rows.first, *map(native.pointer, (rows.key, parent, measured))),
            *(count.shape[1], native.pointer(rows.track_start), *self._shares.shape),
        )
        arrays = durations, inner, self._shares, self.exclusive, count, total, longer, of
        library.wl_region_sums.restype = ctypes.c_int64
        many = library.wl_region_sums(ctypes.byref(block), *map(native.pointer, arrays))
        return longer[:many].copy(), of[:many].copy()

    def _add(self, rows: _Rows, durations: Int, count: Int, total: Int) -> tuple[Int, Int]:
        child = (rows.parent >= rows.first) & rows.measured
        inner = np.bincount(rows.parent[child] - rows.first, durations[child], len(durations)).astype(np.int64)
        key, lasted = rows.key[rows.measured].astype(np.int64), durations[rows.measured]
        # Asynchronous children may outlive their parent.
        own = np.maximum(lasted - inner[rows.measured], 0)
        np.add.at(self.exclusive, key, own)
        short = lasted < _WIDTH
        cells, times = np.unique(key[short] * _WIDTH + lasted[short], return_counts=True)
        self._shares.reshape(-1)[cells] += times
        track = np.repeat(np.arange(count.shape[1]), np.diff(rows.track_start))[rows.measured]
        np.add.at(count, (key, track), 1)
        np.add.at(total, (key, track), lasted)
        return lasted[~short], key[~short]


class _SummedRows(ctypes.Structure):
    _fields_ = [
        ("rows", ctypes.c_int64),
        ("first", ctypes.c_int64),
        ("key", ctypes.c_void_p),
        ("parent", ctypes.c_void_p),
        ("measured", ctypes.c_void_p),
        ("tracks", ctypes.c_int64),
        ("track_start", ctypes.c_void_p),
        ("groups", ctypes.c_int64),
        ("width", ctypes.c_int64),
    ]


class _Members:
    """Counts and durations of each group by warp or by SM."""

    def __init__(self, groups: int, member: Int) -> None:
        many = int(member.max()) + 1 if len(member) else 0
        self._count, self._total = np.zeros((groups, many)), np.zeros((groups, many))

    def add(self, member: Int, count: Int, total: Int) -> None:
        for sums, added in ((self._count, count), (self._total, total)):
            for group, of_tracks in enumerate(added):
                sums[group] += np.bincount(member, of_tracks, sums.shape[1])

    def spread(self, group: int) -> float:
        present = self._count[group] > 0
        return relative_range(self._total[group, present] / self._count[group, present])
