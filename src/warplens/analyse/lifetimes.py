"""The lifetime of each track, block and launch: arrays that every analysis uses, computed once per trace."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.analyse.code_counts import merged_code
from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.region_purpose import Purpose, purposes
from warplens.record.block_lives import BlockLives, unpack_lives
from warplens.record.capture import BLOCK_LIVES, SAMPLED
from warplens.trace.arrays import run_starts
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo

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
        track = trace.numpy("track")
        self.first = run_starts(track)
        self.counts = np.diff(np.append(self.first, len(track)))
        self.region, self.regions = trace.codes("region")
        self.start = trace.numpy("start_cycle")
        self.duration = trace.numpy("dur_cycles")
        self.parent = trace.numpy("parent")

    @classmethod
    def of(cls, trace: Trace) -> Lifetimes:
        """The lifetimes of a trace, computed on first use and kept with the trace."""
        found = trace.derived.get(cls)
        if not isinstance(found, cls):
            found = trace.derived[cls] = cls(trace)
        return found

    def __len__(self) -> int:
        return len(self.first)

    def per_track(self, name: str) -> Int:
        """One value per track of a column that is constant along a track."""
        return np.asarray(self.trace.at(name, self.first), np.int64)

    def spread(self, per_track: Array) -> Array:
        """Expand a per-track array to one value per row."""
        return np.repeat(per_track, self.counts)

    def purposes(self, waits: str | None = None) -> list[Purpose]:
        """The purpose of each region, from its name and, where the trace has it, its code."""
        return purposes(self.regions, waits, merged_code(self.trace))

    @cached_property
    def of_row(self) -> npt.NDArray[np.int32]:
        """The index of each row's track in the per-track arrays; track numbers in the trace may have gaps."""
        return np.repeat(np.arange(len(self), dtype=np.int32), self.counts)

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

    @cached_property
    def detached(self) -> Mask:
        """Asynchronous spans: they overlap their own track, so they do not count against a parent's exclusive time."""
        depth = self.trace.numpy("depth")
        out = np.zeros(len(self.start), bool)
        if len(out) > 1:
            np.less(self.start[1:], self.end[:-1], out=out[:-1])
            out[:-1] &= depth[1:] <= depth[:-1]
            out[self.first[1:] - 1] = False
        # For a row without a parent, index -1 compares with the last row; the mask removes it.
        out |= (self.end > self.end[self.parent]) & (self.parent >= 0)
        out &= self.is_span
        return out

    @cached_property
    def inner(self) -> Int:
        """The rows of spans that are nested in another span of their track."""
        inside = self.parent >= 0
        inside &= self.is_span
        if self.detached.any():
            inside &= ~self.detached
        return np.flatnonzero(inside)

    @cached_property
    def exclusive(self) -> Float:
        """Each span's cycles less those of its direct children; 0 for instants and values."""
        inner = self.inner
        in_children = np.bincount(self.parent[inner], weights=self.duration[inner], minlength=len(self.start))
        own: Float = in_children.astype(np.float64, copy=False)
        np.subtract(self.duration, own, out=own)
        np.maximum(own, 0, out=own)
        if not self.is_span.all():
            own[~self.is_span] = 0
        return own

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

    @cached_property
    def begin(self) -> Int:
        # A clock may step back, so a track's first record is not always its earliest.
        return _reduce(np.minimum, self.start, self.first)

    @cached_property
    def finish(self) -> Int:
        return _reduce(np.maximum, self.end, self.first)

    @cached_property
    def begin_ns(self) -> Int:
        return _reduce(np.minimum, self.trace.numpy("start_ns"), self.first)

    @cached_property
    def finish_ns(self) -> Int:
        return _reduce(np.maximum, self.trace.numpy("start_ns") + self.trace.numpy("dur_ns"), self.first)

    @cached_property
    def launches(self) -> tuple[LaunchLifetime, ...]:
        """Every launch, in the order of rank and number."""
        return self._launches[0]

    @cached_property
    def kernels(self) -> dict[str, Int]:
        """The launches (indices) of each kernel, in order of first launch."""
        out: dict[str, list[int]] = {}
        for at, launch in enumerate(self.launches):
            out.setdefault(launch.kernel, []).append(at)
        return {name: np.array(at) for name, at in out.items()}

    @cached_property
    def variants(self) -> dict[str, Int]:
        """The launches (indices) of each variant of a kernel, in order of first launch."""
        out: dict[str, list[int]] = {}
        for at, launch in enumerate(self.launches):
            out.setdefault(launch.variant, []).append(at)
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
        codes, names = self.per_track("kernel"), self.trace.codes("kernel")[1]
        begin = reduce_by(np.minimum, self.begin_ns, index, len(at))
        end = reduce_by(np.maximum, self.finish_ns, index, len(at))
        blocks = np.bincount(unique_rows(index, self.per_track("block"))[0][0], minlength=len(at))
        seen = np.bincount(unique_rows(index, self.sm)[0][0], minlength=len(at))
        out = []
        for i in range(len(at)):
            info = infos.get((int(keys[0][i]), int(keys[2][i])))
            first, last = (info.begin_ns, info.end_ns) if info else (0, 0)
            known = bool(info and last > first)
            listed = self.trace.meta.devices.get(str(int(keys[1][i])), {})
            out.append(
                LaunchLifetime(
                    number=int(keys[2][i]),
                    rank=int(keys[0][i]),
                    kernel=names[codes[at[i]]],
                    variant=labels.get((int(keys[0][i]), int(keys[2][i])), names[codes[at[i]]]),
                    begin_ns=min(first, int(begin[i])) if known else int(begin[i]),
                    end_ns=max(last, int(end[i])) if known else int(end[i]),
                    blocks=int(blocks[i]),
                    known_blocks=_known_blocks(info, int(blocks[i])),
                    grid_blocks=info.grid[0] * info.grid[1] * info.grid[2] if info else 0,
                    sms=max(int(listed.get("sm_count", 0) or 0), int(seen[i]), _known_sms(info)),
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
            lives = unpack_lives(str(one.info.extra[BLOCK_LIVES]))
            begin = one.info.begin_ns
            # The clock fit places the launch's first start; the globaltimer counts on from there.
            end = np.minimum(lives.end + begin, one.end_ns)
            return BlockLives(lives.number, lives.sm, np.minimum(lives.begin + begin, end), end)
        of = self.blocks_of(launch)
        found = self.blocks
        return BlockLives(found.number[of], found.sm[of], found.begin_ns[of], found.end_ns[of])

    def sum_per_track(self, values: Array) -> Array:
        """The sum of a per-row array over each track."""
        return _reduce(np.add, values, self.first)

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

    def tracks_of(self, name: str) -> Mask:
        return np.asarray(np.isin(self.launch, self.launches_of(name)))


def _known_blocks(info: LaunchInfo | None, recorded: int) -> int:
    """Blocks of a launch whose lifetimes are known. A sample that was cut further is a selection of its own."""
    share = info.extra.get(SAMPLED) if info else None
    if info is None or share is None or BLOCK_LIVES not in info.extra or int(share["with_records"]) != recorded:
        return recorded
    return int(share["known"])


def _known_sms(info: LaunchInfo | None) -> int:
    """SMs that ran blocks of a sampled launch; 0 for other launches, whose rows tell."""
    return int(info.extra.get(SAMPLED, {}).get("sms", 0)) if info else 0


def unique_rows(*columns: Int) -> tuple[list[Int], Int, Int]:
    """Distinct tuples in sorted order, the index of the first occurrence of each, and the tuple of each entry."""
    if not len(columns[0]):
        empty = np.empty(0, np.int64)
        return [empty for _ in columns], empty, empty
    key = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        key = key * (high - low + 1) + (column - low)
    _, at, index = np.unique(key, return_index=True, return_inverse=True)
    return [np.asarray(column[at], np.int64) for column in columns], at, index.reshape(-1)


def reduce_by(what: np.ufunc, values: Array, index: Int, groups: int) -> Array:
    """Reduce the values of each group; every group has at least one."""
    if not groups:
        return values[:0]
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(groups))
    return np.asarray(what.reduceat(values[order], starts))


def _reduce(what: np.ufunc, values: Array, starts: Int) -> Array:
    return np.asarray(what.reduceat(values, starts)) if len(starts) else values[:0]
