"""The durations of a few groups of spans, added up block by block of rows.

A trace of millions of spans is gone through in blocks that fit a processor's cache, so that no array is as long as the
trace. Blocks hold whole tracks, as parents are rows of the same track.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens import native
from warplens.analyse.duration_counts import DurationCounts
from warplens.trace.model import Trace

Int = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
MOST_GROUPS = 64
"""Groups at most: each has a row in tables of the warps and SMs."""
_WIDTH = 1 << 16
"""Durations below this are counted; longer ones are kept."""


@dataclass(frozen=True)
class _Rows:
    """What one block of rows has: group, whether it is a span that ended, parent, and the first row of each track."""

    first: int
    key: npt.NDArray[np.int32]
    measured: Mask
    parent: npt.NDArray[np.int32]
    track_start: npt.NDArray[np.int64]


class RegionSums:
    """The durations of each group in cycles and ns, and the spread of its mean over warps and SMs."""

    def __init__(self, trace: Trace, key: Int, measured: Mask, groups: int) -> None:
        self.cycles, self.ns = _Unit(groups), _Unit(groups)
        tracks = trace.runs("track").starts
        warp, sm = (np.asarray(trace.at(name, tracks), np.int64) for name in ("warp", "sm"))
        self._by_warp, self._by_sm = _Members(groups, warp), _Members(groups, sm)
        for begin, end, (cycles, ns, parent) in trace.blocks("dur_cycles", "dur_ns", "parent"):
            of = slice(*np.searchsorted(tracks, (begin, end)))
            rows = _Rows(
                begin,
                np.ascontiguousarray(key[begin:end], np.int32),
                measured[begin:end],
                parent,
                np.append(tracks[of], end) - begin,
            )
            count, total = self.cycles.add(rows, cycles)
            self.ns.add(rows, ns)
            self._by_warp.add(warp[of], count, total)
            self._by_sm.add(sm[of], count, total)

    @classmethod
    def of_regions(cls, trace: Trace) -> RegionSums:
        """Those of each region of a trace, computed on first use and kept with the trace."""
        found = trace.derived.get(cls)
        if not isinstance(found, cls):
            codes, regions = trace.codes("region")
            measured = trace.of_kind("span") & ~trace.numpy("open")
            found = trace.derived[cls] = cls(trace, codes, measured, len(regions))
        return found

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

    def counts(self, group: int) -> DurationCounts:
        return DurationCounts(self._shares[group], self._longer[group])

    def add(self, rows: _Rows, durations: Int) -> tuple[Int, Int]:
        """Add some rows, and return the count and the total of each group on each track."""
        library = native.load()
        shape = len(self.exclusive), len(rows.track_start) - 1
        count, total = np.zeros(shape, np.int64), np.zeros(shape, np.int64)
        if library is None:
            longer, of = self._add(rows, durations, count, total)
        else:
            longer, of = self._add_native(library, rows, durations, count, total)
        for group in np.unique(of).tolist():
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
        self._count, self._total = np.zeros((many, groups)), np.zeros((many, groups))

    def add(self, member: Int, count: Int, total: Int) -> None:
        np.add.at(self._count, member, count.T)
        np.add.at(self._total, member, total.T)

    def spread(self, group: int) -> float:
        present = self._count[:, group] > 0
        means = self._total[present, group] / self._count[present, group]
        middle = float(means.mean())
        return float((means.max() - means.min()) / middle) if middle else 0.0
