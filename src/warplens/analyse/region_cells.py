"""What each track spent in each region: a small table that most questions can be answered from.

It is made in one pass over blocks of whole tracks, so that no other array than a flag per row is as long as the trace.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens import native
from warplens.trace.model import Trace
from warplens.trace.schema import KINDS

Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class RegionCells:
    """One entry per track and region with spans, in the order of tracks; times in cycles unless their name ends in ns.

    `exclusive` and `own` add up what `Lifetimes` gives for each span; `ns` are the durations in ns, `first_ns` and
    `last_ns` the begin of the first and the end of the last span.
    """

    track: Int
    region: Int
    count: Int
    duration: Int
    exclusive: Int
    own: Int
    ns: Int
    first_ns: Int
    last_ns: Int

    def by_track(self, values: Int, regions: Mask, tracks: int) -> Float:
        """The sums of one column by track, over some regions."""
        return np.bincount(self.track, weights=values * regions[self.region], minlength=tracks).astype(np.float64)


@dataclass(frozen=True)
class TrackExtents:
    """The first and the last moment of each track, in cycles and in ns."""

    begin: Int
    finish: Int
    begin_ns: Int
    finish_ns: Int


class TrackSums:
    """The cells and extents of all tracks, and which rows are asynchronous spans."""

    columns = ("start_cycle", "dur_cycles", "start_ns", "dur_ns", "region", "parent", "depth", "kind")

    def __init__(self, trace: Trace) -> None:
        self.detached: Mask = np.empty(len(trace), bool)
        self._first, self._regions = trace.runs("track").starts, len(trace.regions)
        self._add = _add if native.load() is None else _NativeSums(self._regions).add
        none = [np.zeros(0, np.int64)]
        self._cells: list[list[Any]] = [none * len(fields(RegionCells))]
        self._extents: list[list[Any]] = [none * len(fields(TrackExtents))]

    def add(self, begin: int, end: int, block: Mapping[str, npt.NDArray[Any]]) -> None:
        tracks = slice(*np.searchsorted(self._first, (begin, end)))
        arrays: list[Any] = [np.append(self._first[tracks], end) - begin, *(block[name] for name in self.columns[:-1])]
        arrays.append(block["kind"] == KINDS.index("span"))
        track, *found = self._add(_TrackBlock(begin, *arrays), self.detached[begin:end], self._regions)
        self._cells.append([track + tracks.start, *found[: len(fields(RegionCells)) - 1]])
        self._extents.append(found[len(fields(RegionCells)) - 1 :])

    @cached_property
    def cells(self) -> RegionCells:
        return RegionCells(*(np.concatenate(parts) for parts in zip(*self._cells, strict=True)))

    @cached_property
    def extents(self) -> TrackExtents:
        return TrackExtents(*(np.concatenate(parts) for parts in zip(*self._extents, strict=True)))


@dataclass(frozen=True)
class _TrackBlock:
    """Rows of whole tracks. `first` is the row of the trace that they begin with, which `track_start` counts from."""

    first: int
    track_start: Int
    start: Int
    duration: Int
    start_ns: Int
    duration_ns: Int
    region: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int16]
    is_span: Mask


class _NativeSums:
    """`wl_region_cells` of native/region_cells.c, with room that all blocks use one after the other."""

    def __init__(self, regions: int) -> None:
        self._cell_of = np.full(max(regions, 1), -1, np.int64)
        self._room = np.empty((0, 0), np.int64)

    def add(self, block: _TrackBlock, detached: Mask, regions: int) -> list[Any]:
        library = native.load()
        assert library is not None
        rows, tracks = len(block.start), len(block.track_start) - 1
        if self._room.shape[1] < rows:
            self._room = np.empty((len(fields(RegionCells)) + 1, rows), np.int64)
        inner, *cells = self._room
        extents = [np.empty(tracks, np.int64) for _ in fields(TrackExtents)]
        arrays = [np.ascontiguousarray(getattr(block, field.name)) for field in fields(_TrackBlock)[1:]]
        structure = [tracks, regions, block.first, *map(native.address, arrays)]
        library.wl_region_cells.restype = ctypes.c_int64
        many = library.wl_region_cells(
            (ctypes.c_int64 * len(structure))(*structure),
            *map(native.pointer, (detached, inner, self._cell_of)),
            (ctypes.c_void_p * len(cells))(*map(native.address, cells)),
            (ctypes.c_void_p * len(extents))(*map(native.address, extents)),
        )
        return [*(column[:many].copy() for column in cells), *extents]


def _add(block: _TrackBlock, detached: Mask, regions: int) -> list[Any]:
    """The same with numpy."""
    heads, spans = block.track_start[:-1], block.is_span
    end, end_ns = block.start + block.duration, block.start_ns + block.duration_ns
    detached[:] = False
    np.less(block.start[1:], end[:-1], out=detached[:-1])
    detached[:-1] &= block.depth[1:] <= block.depth[:-1]
    detached[block.track_start[1:] - 1] = False
    around = block.parent.astype(np.int64) - block.first
    detached |= (around >= 0) & (end > end[np.maximum(around, 0)])
    detached &= spans
    child = spans & ~detached & (around >= 0)
    inner = np.bincount(around[child], block.duration[child], len(end)).astype(np.int64)
    exclusive = np.maximum(block.duration - inner, 0)
    track = np.repeat(np.arange(len(heads)), np.diff(block.track_start))
    used, cell = np.unique((track * regions + block.region)[spans], return_inverse=True)
    sums = (block.duration, exclusive, np.where(detached, 0, exclusive), block.duration_ns)
    first_ns, last_ns = np.full(len(used), np.iinfo(np.int64).max), np.full(len(used), np.iinfo(np.int64).min)
    np.minimum.at(first_ns, cell, block.start_ns[spans])
    np.maximum.at(last_ns, cell, end_ns[spans])
    cells = [
        *(used // max(regions, 1), used % max(regions, 1), np.bincount(cell, minlength=len(used))),
        *(np.bincount(cell, values[spans], len(used)).astype(np.int64) for values in sums),
        *(first_ns, last_ns),
    ]
    extents = [
        reduce.reduceat(values, heads)
        for values, reduce in (
            *((block.start, np.minimum), (end, np.maximum)),
            *((block.start_ns, np.minimum), (end_ns, np.maximum)),
        )
    ]
    return [*cells, *extents]
