"""The lifetime of each track, block and launch: arrays that every analysis uses, computed once per trace."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.analyse.code_counts import merged_code
from warplens.analyse.groups import reduce_by, unique_rows
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.known_blocks import known_blocks, known_lives, known_sms
from warplens.analyse.region_cells import RegionCells, TrackExtents, TrackSums
from warplens.analyse.region_purpose import Purpose, purposes
from warplens.analyse.row_pass import pass_over
from warplens.record.block_lives import BlockLives
from warplens.trace.model import BLOCK_ROWS, Trace
from warplens.trace.runs import Runs
from warplens.trace.schema import LIFE, LaunchInfo

Array = npt.NDArray[Any]
Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class LaunchLifetime:
    """One launch. `blocks` of `grid_blocks` left records, of `known_blocks` the lifetimes are known; `sms` counts the
    SMs of the device. `variant` is the label of the kernel's variant, the kernel's name where it has only one."""

    number: int
    rank: int
    kernel: str
    variant: str
    begin_ns: int
    end_ns: int
    blocks: int
    known_blocks: int
    grid_blocks: int
    sms: int
    info: LaunchInfo | None

    @property
    def duration_ns(self) -> int:
        return max(self.end_ns - self.begin_ns, 1)

    @property
    def complete(self) -> bool:
        """Whether the trace knows when every block of the grid ran."""
        return self.grid_blocks == 0 or self.known_blocks >= self.grid_blocks

    @property
    def blocks_per_known(self) -> float:
        """How many blocks the grid has for each one that the trace knows of."""
        return 1.0 if self.complete else self.grid_blocks / max(self.known_blocks, 1)

    @property
    def recorded(self) -> bool:
        """Whether every block of the grid left records."""
        return self.grid_blocks == 0 or self.blocks >= self.grid_blocks


@dataclass(frozen=True)
class Blocks:
    """One entry per block of every launch: where it ran, and its first and last record."""

    launch: Int
    number: Int
    sm: Int
    begin: Int
    end: Int
    begin_ns: Int
    end_ns: Int

    def __len__(self) -> int:
        return len(self.launch)


class Lifetimes:
    """The tracks of a trace. Times are cycles unless their name ends in `_ns`: cycles of one SM compare exactly."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        tracks = trace.runs("track")
        self.first, self.counts = tracks.starts, tracks.counts
        self._per_track: dict[str, Int] = {}
        self._purposes: dict[str | None, list[Purpose]] = {}
        self._purpose_of: dict[str | None, dict[str, Purpose]] = {}
        self._waiting: dict[str | None, Mask] = {}
        self._tracks_of: tuple[str, Mask] = "", np.zeros(0, bool)

    @classmethod
    def of(cls, trace: Trace) -> Lifetimes:
        """The lifetimes of a trace, computed on first use and kept with the trace."""
        found = trace.derived.get(cls)
        if not isinstance(found, cls):
            found = trace.derived[cls] = cls(trace)
        return found

    @property
    def whole(self) -> Lifetimes:
        """Those of the whole trace, where these are of a part of it (kernel_lives.py)."""
        return self

    def __len__(self) -> int:
        return len(self.first)

    @cached_property
    def region(self) -> Array:
        return self.trace.codes("region")[0]

    @cached_property
    def regions(self) -> list[str]:
        return self.trace.regions

    @cached_property
    def region_codes(self) -> dict[str, int]:
        """The place of each region in `regions`."""
        return {name: code for code, name in enumerate(self.regions)}

    @cached_property
    def start(self) -> Int:
        return self.trace.numpy("start_cycle")

    @cached_property
    def duration(self) -> Int:
        return self.trace.numpy("dur_cycles")

    @cached_property
    def parent(self) -> Array:
        return self.trace.numpy("parent")

    def per_track(self, name: str) -> Int:
        """One value per track of a column that is constant along a track."""
        if name not in self._per_track:
            self._per_track[name] = np.asarray(self.trace.at(name, self.first), np.int64)
        return self._per_track[name]

    def spread(self, per_track: Array) -> Array:
        """Expand a per-track array to one value per row."""
        return np.repeat(per_track, self.counts)

    def purposes(self, waits: str | None = None) -> list[Purpose]:
        """The purpose of each region, from its name and, where the trace has it, its code."""
        if waits not in self._purposes:
            self._purposes[waits] = purposes(self.regions, waits, merged_code(self.trace))
        return self._purposes[waits]

    def waiting(self, waits: str | None = None) -> Mask:
        """Whether each region waits."""
        if waits not in self._waiting:
            self._waiting[waits] = np.array([kind is Purpose.WAIT for kind in self.purposes(waits)], bool)
        return self._waiting[waits]

    def purpose_of(self, waits: str | None = None) -> dict[str, Purpose]:
        """The same by name."""
        if waits not in self._purpose_of:
            self._purpose_of[waits] = dict(zip(self.regions, self.purposes(waits), strict=True))
        return self._purpose_of[waits]

    @cached_property
    def of_row(self) -> npt.NDArray[np.int32]:
        """The index of each row's track in the per-track arrays; track numbers in the trace may have gaps."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts)

    def track_of(self, rows: Int) -> Int:
        """The index of the track of each of some rows, which must be on these tracks."""
        return np.asarray(self.of_row[rows], np.int64)

    @cached_property
    def tracks(self) -> Int:
        """The number of each track in the whole trace."""
        return np.arange(len(self))

    @cached_property
    def has_regions(self) -> Mask:
        """Whether each track has more than its own lifetime."""
        if LIFE not in self.regions:
            return np.ones(len(self), bool)
        others = self.region != self.regions.index(LIFE)
        return np.asarray(np.bincount(self.of_row[others], minlength=len(self)) > 0)

    @cached_property
    def row_bounds(self) -> Int:
        """The first row of each track of the whole trace, then the number of rows."""
        return np.append(self.first, len(self.start)).astype(np.int64)

    @cached_property
    def end(self) -> Int:
        return self.start + self.duration

    @cached_property
    def is_span(self) -> Mask:
        return self.trace.of_kind("span")

    @cached_property
    def measured(self) -> Mask:
        """Spans whose end was recorded."""
        return np.asarray(self.is_span & ~self.trace.numpy("open"))

    def row_blocks(self) -> Iterator[slice]:
        """The rows of whole tracks in blocks that fit a processor's cache, so that large arrays are not needed."""
        return (slice(*rows) for rows in self.trace.runs("track").blocks(0, len(self.start), BLOCK_ROWS))

    @cached_property
    def _sums(self) -> TrackSums:
        return pass_over(self.trace, TrackSums)

    @property
    def cells(self) -> RegionCells:
        """What each track spent in each region."""
        return self._sums.cells

    @property
    def detached(self) -> Mask:
        """Asynchronous spans: they overlap their own track, so they do not count against a parent's exclusive time."""
        return self._sums.detached

    @cached_property
    def inner(self) -> Int:
        """The rows of spans that are nested in another span of their track."""
        return np.flatnonzero(self._nested(slice(None)))

    def _nested(self, rows: slice) -> Mask:
        inside = self.parent[rows] >= 0
        inside &= self.is_span[rows]
        inside &= ~self.detached[rows]
        return inside

    @cached_property
    def exclusive(self) -> Float:
        """Each span's cycles less those of its direct children; 0 for instants and values."""
        found = np.empty(len(self.start), np.float64)
        for rows in self.row_blocks():
            child, duration = self._nested(rows), self.duration[rows]
            around = self.parent[rows][child] - rows.start
            inner = np.bincount(around, weights=duration[child], minlength=len(duration))
            np.subtract(duration, inner, out=found[rows])
            np.maximum(found[rows], 0, out=found[rows])
            found[rows] *= self.is_span[rows]
        return found

    @cached_property
    def own(self) -> Float:
        """Exclusive cycles, 0 for asynchronous spans, so that the sum never exceeds the track's lifetime."""
        return np.where(self.detached, 0.0, self.exclusive) if self.detached.any() else self.exclusive

    @cached_property
    def sm(self) -> Int:
        return self.per_track("sm")

    @cached_property
    def warp(self) -> Int:
        return self.per_track("warp")

    @cached_property
    def launch(self) -> Int:
        """Each track's index in `launches`."""
        return self._launches[1]

    @property
    def extents(self) -> TrackExtents:
        """The first and the last moment of each track."""
        return self._sums.extents

    @property
    def begin(self) -> Int:
        """The earliest begin of each track: a clock may step back, so its first record is not always its earliest."""
        return self.extents.begin

    @property
    def finish(self) -> Int:
        return self.extents.finish

    @property
    def begin_ns(self) -> Int:
        return self.extents.begin_ns

    @property
    def finish_ns(self) -> Int:
        return self.extents.finish_ns

    @cached_property
    def launches(self) -> tuple[LaunchLifetime, ...]:
        """Every launch, in the order of rank and number."""
        return self._launches[0]

    @cached_property
    def launch_begin(self) -> Int:
        """When each launch began, in ns."""
        return np.array([each.begin_ns for each in self.launches], np.int64)

    @cached_property
    def launch_ns(self) -> Int:
        """The duration of each launch."""
        return np.array([each.duration_ns for each in self.launches], np.int64)

    @cached_property
    def kernels(self) -> dict[str, Int]:
        """The launches (indices) of each kernel, in order of first launch."""
        return self._launches_by("kernel")

    @cached_property
    def variants(self) -> dict[str, Int]:
        """The launches (indices) of each variant of a kernel, in order of first launch."""
        return self._launches_by("variant")

    def _launches_by(self, name: str) -> dict[str, Int]:
        out: dict[str, list[int]] = {}
        for at, launch in enumerate(self.launches):
            out.setdefault(getattr(launch, name), []).append(at)
        return {label: np.array(at) for label, at in out.items()}

    @cached_property
    def variant(self) -> Int:
        """Each track's index in `variants`."""
        of_launch = np.zeros(len(self.launches), np.int64)
        for number, launches in enumerate(self.variants.values()):
            of_launch[launches] = number
        return of_launch[self.launch]

    @cached_property
    def _launches(self) -> tuple[tuple[LaunchLifetime, ...], Int]:
        rank, number, device = self.per_track("rank"), self.per_track("launch"), self.per_track("device")
        keys, at, index = unique_rows(rank, device, number)
        infos = {(info.rank, info.launch): info for info in self.trace.meta.launches}
        labels = {
            (info.rank, info.launch): variant.label
            for variant in kernel_variants(self.trace.meta.launches)
            for info in variant.launches
        }
        codes, names = self.per_track("kernel"), self.trace.kernels
        begin = reduce_by(np.minimum, self.begin_ns, index, len(at))
        end = reduce_by(np.maximum, self.finish_ns, index, len(at))
        blocks = np.bincount(unique_rows(index, self.per_track("block"))[0][0], minlength=len(at))
        seen = np.bincount(unique_rows(index, self.sm)[0][0], minlength=len(at))
        out = []
        for i in range(len(at)):
            info = infos.get((int(keys[0][i]), int(keys[2][i])))
            first, last = (info.begin_ns, info.end_ns) if info else (0, 0)
            known = bool(info and last > first)
            listed = self.trace.meta.device(int(keys[0][i]), int(keys[1][i]))
            out.append(
                LaunchLifetime(
                    number=int(keys[2][i]),
                    rank=int(keys[0][i]),
                    kernel=names[codes[at[i]]],
                    variant=labels.get((int(keys[0][i]), int(keys[2][i])), names[codes[at[i]]]),
                    begin_ns=min(first, int(begin[i])) if known else int(begin[i]),
                    end_ns=max(last, int(end[i])) if known else int(end[i]),
                    blocks=int(blocks[i]),
                    known_blocks=known_blocks(info, int(blocks[i])),
                    grid_blocks=info.grid[0] * info.grid[1] * info.grid[2] if info else 0,
                    sms=max(int(listed.get("sm_count", 0) or 0), int(seen[i]), known_sms(info)),
                    info=info,
                )
            )
        return tuple(out), index

    @cached_property
    def block(self) -> Int:
        """Each track's index in `blocks`."""
        return self._blocks[1]

    @cached_property
    def blocks(self) -> Blocks:
        return self._blocks[0]

    @cached_property
    def _blocks(self) -> tuple[Blocks, Int]:
        keys, at, index = unique_rows(self.launch, self.per_track("block"))
        n = len(at)
        found = Blocks(
            launch=keys[0],
            number=keys[1],
            sm=self.sm[at],
            begin=reduce_by(np.minimum, self.begin, index, n),
            end=reduce_by(np.maximum, self.finish, index, n),
            begin_ns=reduce_by(np.minimum, self.begin_ns, index, n),
            end_ns=reduce_by(np.maximum, self.finish_ns, index, n),
        )
        return found, index

    @cached_property
    def place(self) -> Int:
        """Each track's (launch, SM) as a dense number; all tracks of one place share one clock."""
        return unique_rows(self.launch, self.sm)[2]

    @cached_property
    def place_launch(self) -> Int:
        return unique_rows(self.launch, self.sm)[0][0]

    @cached_property
    def cycles_per_ns(self) -> float:
        """The mean clock rate of the whole trace."""
        cycles, ns = (self.finish - self.begin).sum(), (self.finish_ns - self.begin_ns).sum()
        return float(cycles / ns) if ns > 0 and cycles > 0 else 1.0

    def blocks_of(self, launch: int) -> slice:
        """The blocks of one launch, which are contiguous."""
        low, high = np.searchsorted(self.blocks.launch, [launch, launch + 1])
        return slice(int(low), int(high))

    def all_blocks_of(self, launch: int) -> BlockLives:
        """Every block of a launch that the trace knows of, also those whose records were not kept; times of the trace.

        A part of a trace that was selected has the blocks in it.
        """
        one = self.launches[launch]
        if one.known_blocks > one.blocks and one.info is not None:
            lives = known_lives(one.info, one.known_blocks)
            begin = one.info.begin_ns
            # The clock fit places the launch's first start; the globaltimer counts on from there.
            end = np.minimum(lives.end + begin, one.end_ns)
            return BlockLives(lives.number, lives.sm, np.minimum(lives.begin + begin, end), end)
        of = self.blocks_of(launch)
        found = self.blocks
        return BlockLives(found.number[of], found.sm[of], found.begin_ns[of], found.end_ns[of])

    def launches_of(self, name: str) -> Int:
        """The launches (indices) of a variant by its label, or of all variants of a kernel by its name."""
        return self.variants[name] if name in self.variants else self.kernels.get(name, np.empty(0, np.int64))

    def kernel_ns(self, name: str) -> float:
        """The mean duration of the launches of a variant or kernel."""
        return float(np.mean([self.launches[at].duration_ns for at in self.launches_of(name)]))

    def spans_of(self, name: str, measured: bool = False) -> Int | slice:
        """The span rows of a variant or kernel; a slice where that is all rows, which avoids copies."""
        chosen = self.measured if measured else self.is_span
        if len(self.launches_of(name)) == len(self.launches):
            return slice(None) if chosen.all() else np.flatnonzero(chosen)
        rows = self.rows_of(np.flatnonzero(self.tracks_of(name)))
        return rows[chosen[rows]]

    def rows_of(self, tracks: Int) -> Int:
        """All rows of some tracks, in order, without a pass over the rows of the others."""
        counts = self.counts[tracks]
        before = np.cumsum(counts) - counts
        return np.asarray(np.arange(int(counts.sum())) + np.repeat(self.first[tracks] - before, counts))

    def track_batches(self, place: Int) -> Iterator[Int]:
        """Tracks with all others at the same place, such as a block, in batches that fit a processor's cache."""
        order = np.argsort(place, kind="stable")
        ends = np.cumsum(self.counts[order])
        heads = Runs.of(place[order]).starts
        rows = Runs((ends - self.counts[order])[heads], heads, int(ends[-1]) if len(ends) else 0)
        for first, last in rows.blocks(0, rows.rows, BLOCK_ROWS):
            yield order[slice(*np.searchsorted(ends, (first, last), side="right"))]

    def spans_in(self, tracks: Mask, regions: Mask) -> Int:
        """The rows of the spans of some regions on some tracks, in order."""
        found = [np.zeros(0, np.int64)]
        for rows in self.row_blocks():
            of = slice(*np.searchsorted(self.first, (rows.start, rows.stop)))
            chosen = regions[self.region[rows]] & self.is_span[rows]
            if not tracks[of].all():
                chosen &= np.repeat(tracks[of], self.counts[of])
            found.append(rows.start + np.flatnonzero(chosen))
        return np.concatenate(found)

    def tracks_of(self, name: str) -> Mask:
        """Whether each track is of a variant or kernel. The last answer is kept: variants are judged one by one."""
        if self._tracks_of[0] != name or len(self._tracks_of[1]) != len(self):
            chosen = np.zeros(len(self.launches), bool)
            chosen[self.launches_of(name)] = True
            self._tracks_of = name, chosen[self.launch]
            self._tracks_of[1].flags.writeable = False
        return self._tracks_of[1]
