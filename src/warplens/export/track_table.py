"""The tracks of a trace as timeline formats need them: their rows, processes, threads and names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.errors import WarplensError
from warplens.trace.arrays import run_starts
from warplens.trace.barrier_rows import NO_RECORD
from warplens.trace.edges import has_barrier_records
from warplens.trace.model import Trace
from warplens.trace.pass_progress import passed
from warplens.trace.schema import LaunchInfo, kind_indices

Array = npt.NDArray[Any]

CHUNK_ROWS = 1 << 14
"""Rows that are written together: their text stays in a processor's cache until the system has copied it."""
SPAN, INSTANT, VALUE = range(3)
"""Codes of `TrackRows.kind`: indices of schema.KINDS, whatever the order in the file's dictionary."""
_ROW_TYPES: tuple[Any, ...] = (np.int8, np.int32, np.int32, np.int16, np.int64, np.int64)
"""The types of the columns of `TrackRows`, which C code reads."""
BARRIER = 3
"""The code of barrier records, whose numbers are no counter; arrows show them (barrier_arrows.py)."""


@dataclass(frozen=True)
class TrackRows:
    """The columns that timelines need, ordered by track, then by start."""

    kind: npt.NDArray[np.int8]
    region: npt.NDArray[np.int32]
    parent: npt.NDArray[np.int32]
    depth: npt.NDArray[np.int16]
    start: npt.NDArray[np.int64]
    duration: npt.NDArray[np.int64]


@dataclass(frozen=True)
class LaunchOnSm:
    """One launch on one SM, from its first record there to its last."""

    process: int
    launch: int
    rank: int
    kernel: str
    begin: int
    end: int
    info: LaunchInfo | None


@dataclass(frozen=True)
class TrackPart:
    """The rows of the tracks from `begin` to `end`. Row numbers count from `first`, a row of the table."""

    begin: int
    end: int
    first: int
    row_start: npt.NDArray[np.int64]
    rows: TrackRows
    cycles: npt.NDArray[np.int64]

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Ranges of tracks of the table that have about CHUNK_ROWS rows together."""
        return ((self.begin + begin, self.begin + end) for begin, end in _chunks(self.row_start))


class TrackTable:
    """The tracks of a trace: their rows, and the SM (process) and warp (thread) of each.

    `pid` is 10,000 times the position of the device in the trace, from 1, plus the SM; `tid` numbers the tracks by
    launch, block, warp and lane, above every pid. With `by_part`, the rows are only read part by part.
    """

    def __init__(self, trace: Trace, *, by_part: bool = False) -> None:
        self._trace = trace
        extents = _Extents(trace, keep=() if by_part else ("start_ns", "dur_ns"))
        if extents.earliest < 0:
            raise WarplensError(f"a span starts at {extents.earliest} ns; times must not be negative: decode it again")
        if extents.shortest < 0:
            raise WarplensError(f"a span lasts {extents.shortest} ns; durations must not be negative: decode it again")
        self._extents = extents if extents.in_order else None
        self._order, heads = None, trace.runs("track").starts
        if self._extents is None:
            self._order = np.lexsort((trace.numpy("start_ns"), trace.numpy("track")))
            heads = run_starts(self.column("track"))
        self.row_start = np.append(heads, len(trace)).astype(np.int64)
        self.count = len(self.row_start) - 1
        self.regions = trace.regions

    @cached_property
    def rows(self) -> TrackRows:
        return TrackRows(
            kind=self._kinds(),
            region=np.ascontiguousarray(self._in_order(self._trace.codes("region")[0]), np.int32),
            parent=self._parents(),
            depth=np.ascontiguousarray(self.column("depth"), np.int16),
            start=np.ascontiguousarray(self.column("start_ns"), np.int64),
            duration=np.ascontiguousarray(self.column("dur_ns"), np.int64),
        )

    def parts(self) -> Iterator[TrackPart]:
        """All rows in parts of whole tracks, which need little memory; rows that are not in order are one part."""
        if self._order is not None:
            yield TrackPart(0, self.count, 0, self.row_start, self.rows, self.column("dur_cycles"))
            return
        columns = "kind", "region", "parent", "depth", "start_ns", "dur_ns", "dur_cycles"
        for first, last, (kind, region, parent, *others, cycles) in self._trace.blocks(*columns):
            begin, end = np.searchsorted(self.row_start, (first, last)).tolist()
            if (kind == VALUE).any() and has_barrier_records(self._trace):
                kind = np.where(self._trace.numpy("released_by")[first:last] != NO_RECORD, np.int8(BARRIER), kind)
            if first:  # a parent that is in no part is none of this one
                parent = np.where(parent >= first, parent - first, np.where(parent < 0, parent, np.int32(-2)))
            arrays = zip((kind, region, parent, *others), _ROW_TYPES, strict=True)
            rows = TrackRows(*(np.ascontiguousarray(values, dtype) for values, dtype in arrays))
            yield TrackPart(begin, end, first, self.row_start[begin : end + 1] - first, rows, cycles)

    def column(self, name: str) -> Array:
        """A column of numbers in the order of `rows`."""
        return self._in_order(self._trace.numpy(name))

    def _in_order(self, values: Array) -> Array:
        return values if self._order is None else values[self._order]

    def _kinds(self) -> npt.NDArray[np.int8]:
        codes = kind_indices(*self._trace.codes("kind"))
        if has_barrier_records(self._trace):
            codes = np.where(self._trace.numpy("released_by") != NO_RECORD, np.int8(BARRIER), codes)
        return np.ascontiguousarray(self._in_order(codes), np.int8)

    def _parents(self) -> npt.NDArray[np.int32]:
        parent = self._trace.numpy("parent")
        if self._order is not None:
            moved = np.empty(len(parent) + 1, np.int32)
            moved[self._order] = np.arange(len(parent))
            moved[-1] = -1
            parent = moved[parent[self._order]]
        return np.ascontiguousarray(parent, np.int32)

    def track_of(self, rows: Array) -> Array:
        if self._order is not None:
            place = np.empty(len(self._order), np.int64)
            place[self._order] = np.arange(len(self._order))
            rows = place[rows]
        return np.searchsorted(self.row_start, rows, side="right") - 1

    def of_track(self, name: str) -> Array:
        """One value per track of a column that is constant along a track."""
        first = self.row_start[:-1]
        if self._order is not None:
            first = self._order[first]
        return self._trace.at(name, first).astype(np.int64)

    @cached_property
    def identity(self) -> dict[str, npt.NDArray[np.int64]]:
        """rank, device, launch, sm, block, warp and lane of each track."""
        return {name: self.of_track(name) for name in ("rank", "device", "launch", "sm", "block", "warp", "lane")}

    @cached_property
    def _devices(self) -> list[tuple[int, int]]:
        return sorted(set(zip(self.identity["rank"].tolist(), self.identity["device"].tolist(), strict=True)))

    @cached_property
    def pid(self) -> npt.NDArray[np.int64]:
        """The process of each track."""
        place = {device: number for number, device in enumerate(self._devices, 1)}
        pairs = zip(self.identity["rank"].tolist(), self.identity["device"].tolist(), strict=True)
        step = 10_000 if self.count == 0 or int(self.identity["sm"].max()) < 10_000 else 100_000
        return np.array([place[pair] * step for pair in pairs], np.int64) + self.identity["sm"]

    @cached_property
    def tid(self) -> npt.NDArray[np.int64]:
        """The thread of each track."""
        keys = [self.identity[name] for name in ("lane", "warp", "block", "launch", "device", "rank")]
        tid = np.empty(self.count, np.int64)
        tid[np.lexsort(keys)] = np.arange(1, self.count + 1)
        tid += 10 ** len(str(int(self.pid.max(initial=0))))
        return tid

    @cached_property
    def processes(self) -> list[tuple[int, str]]:
        """(pid, name) of every SM, in order."""
        firsts = np.unique(self.pid, return_index=True)[1]
        who = self.identity
        several_ranks = len({rank for rank, _ in self._devices}) > 1
        several_devices = len({device for _, device in self._devices}) > 1
        named = []
        for at in firsts.tolist():
            rank = f"rank {who['rank'][at]} " if several_ranks else ""
            device = f"device {who['device'][at]} " if several_devices else ""
            named.append((int(self.pid[at]), f"{rank}{device}SM {who['sm'][at]}"))
        return named

    @cached_property
    def names(self) -> list[str]:
        """The name of each track: `gemm #0 block 5 warp 2`."""
        kernels = self._trace.kernels
        who = self.identity
        columns = [self.of_track("kernel"), who["launch"], who["block"], who["warp"], who["lane"]]
        lane = " lane {}" if who["lane"].any() else ""
        return [
            f"{kernels[k]} #{launch} block {block} warp {warp}{lane.format(number)}"
            for k, launch, block, warp, number in zip(*(column.tolist() for column in columns), strict=True)
        ]

    @cached_property
    def infos(self) -> list[LaunchInfo | None]:
        """The metadata of each track's launch."""
        known = {(info.rank, info.launch): info for info in self._trace.meta.launches}
        keys = zip(self.identity["rank"].tolist(), self.identity["launch"].tolist(), strict=True)
        return [known.get(key) for key in keys]

    def chunks(self) -> Iterator[tuple[int, int]]:
        """Ranges of whole tracks of about CHUNK_ROWS rows, which keeps temporary arrays small."""
        for begin, end in _chunks(self.row_start):
            yield begin, end
            passed(int(self.row_start[end]), int(self.row_start[-1]))

    def _extent(self) -> tuple[Array, Array]:
        """The first begin and the last end of each track."""
        if self._extents is not None:
            return self._extents.first, self._extents.last
        heads = self.row_start[:-1]
        return self.rows.start[heads], np.maximum.reduceat(self.rows.start + self.rows.duration, heads)

    @cached_property
    def launches(self) -> dict[int, list[LaunchOnSm]]:
        """The launches on each SM, by pid, in order of begin."""
        if not self.count:
            return {}
        first, last = self._extent()
        keys = np.stack([self.pid, self.identity["rank"], self.identity["launch"]])
        unique, at, group = np.unique(keys, axis=1, return_index=True, return_inverse=True)
        group = group.reshape(-1)
        begins = np.full(unique.shape[1], np.iinfo(np.int64).max)
        ends = np.zeros(unique.shape[1], np.int64)
        np.minimum.at(begins, group, first)
        np.maximum.at(ends, group, last)
        kernels, codes = self._trace.kernels, self.of_track("kernel")
        found = [
            LaunchOnSm(pid, launch, rank, kernels[codes[row]], begin, end, self.infos[row])
            for pid, rank, launch, row, begin, end in zip(
                *unique.tolist(), at.tolist(), begins.tolist(), ends.tolist(), strict=True
            )
        ]
        by_process: dict[int, list[LaunchOnSm]] = {pid: [] for pid, _ in self.processes}
        for entry in sorted(found, key=lambda entry: (entry.begin, entry.launch)):
            by_process[entry.process].append(entry)
        return by_process


def stack_in_lanes(intervals: list[tuple[int, int]]) -> list[int]:
    """Assign intervals, given in order of begin, to lanes such that no two in a lane overlap."""
    free: list[int] = []
    lanes = []
    for begin, end in intervals:
        lane = next((number for number, until in enumerate(free) if until <= begin), len(free))
        free[lane : lane + 1] = [end]
        lanes.append(lane)
    return lanes


class _Extents:
    """The first begin and the last end of each track, and whether the rows are ordered by track, then by begin."""

    def __init__(self, trace: Trace, keep: Sequence[str]) -> None:
        tracks = trace.runs("track")
        self.first, self.last = (np.empty(len(tracks.starts), np.int64) for _ in range(2))
        self.earliest = self.shortest = 0
        self.in_order = bool((tracks.values[1:] > tracks.values[:-1]).all())
        for begin, end, (start, duration) in trace.blocks("start_ns", "dur_ns", keep=keep):
            of = slice(*np.searchsorted(tracks.starts, (begin, end)))
            heads = tracks.starts[of] - begin
            back = start[1:] < start[:-1]
            back[heads[1:] - 1] = False
            self.in_order &= not back.any()
            self.first[of], self.last[of] = start[heads], np.maximum.reduceat(start + duration, heads)
            self.earliest = min(self.earliest, int(start.min()))
            self.shortest = min(self.shortest, int(duration.min()))


def _chunks(row_start: Array) -> Iterator[tuple[int, int]]:
    """Ranges of tracks of about CHUNK_ROWS rows, for the first row of each track and the end."""
    begin, count = 0, len(row_start) - 1
    while begin < count:
        reach = int(np.searchsorted(row_start, row_start[begin] + CHUNK_ROWS, side="right")) - 1
        end = min(max(reach, begin + 1), count)
        yield begin, end
        begin = end
