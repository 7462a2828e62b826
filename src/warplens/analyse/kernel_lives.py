"""The lifetimes of one variant of a kernel, so that what is asked of each variant passes over its own tracks only.

Tracks, blocks and launches are numbered anew, in the same order. Rows keep the numbers that they have in the trace, and
regions those that they have in all of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from warplens.analyse.groups import in_groups
from warplens.analyse.lifetimes import Array, Blocks, Float, Int, LaunchLifetime, Lifetimes, Mask
from warplens.analyse.region_cells import RegionCells, TrackExtents
from warplens.analyse.region_purpose import Purpose


def lives_of(whole: Lifetimes, name: str) -> Lifetimes:
    """The lifetimes of a variant by its label, or of all variants of a kernel by its name, made on first use."""
    if len(whole.launches_of(name)) == len(whole.launches):
        return whole
    # Kept with the trace, not by `whole`: they name each other's trace, and a piece of a dataset is given up at once.
    parts: dict[str, KernelLives] = whole.trace.derived.setdefault(KernelLives, {})
    if name not in parts:
        parts[name] = KernelLives(whole, name)
    return parts[name]


def each_variant(whole: Lifetimes) -> Iterator[tuple[str, Lifetimes]]:
    """Every variant of a kernel, with its own lifetimes."""
    return ((label, lives_of(whole, label)) for label in whole.variants)


class KernelLives(Lifetimes):
    """A part of `whole`. Arrays of one entry per row are those of the whole trace."""

    def __init__(self, whole: Lifetimes, name: str) -> None:
        self.trace, self._whole = whole.trace, whole
        groups = _groups_of(whole)
        self._launch_numbers = whole.launches_of(name)
        if name in whole.variants:
            number = groups.numbers[name]
            self.tracks, self.cells_at = groups.tracks[number], groups.cells[number]
        else:  # all variants of a kernel
            mine = np.zeros(len(whole.launches), bool)
            mine[self._launch_numbers] = True
            self.tracks = np.flatnonzero(mine[whole.launch])
            self.cells_at = np.flatnonzero(mine[whole.launch[whole.cells.track]])
        self.first, self.counts = whole.first[self.tracks], whole.counts[self.tracks]
        self._per_track = {}
        self._tracks_of = "", np.zeros(0, bool)

    # --- what the whole trace has

    @property
    def whole(self) -> Lifetimes:
        return self._whole

    @cached_property
    def region(self) -> Array:
        return self.whole.region

    @cached_property
    def regions(self) -> list[str]:
        return self.whole.regions

    @cached_property
    def region_codes(self) -> dict[str, int]:
        return self.whole.region_codes

    @cached_property
    def start(self) -> Int:
        return self.whole.start

    @cached_property
    def duration(self) -> Int:
        return self.whole.duration

    @cached_property
    def parent(self) -> Array:
        return self.whole.parent

    @cached_property
    def end(self) -> Int:
        return self.whole.end

    @cached_property
    def is_span(self) -> Mask:
        return self.whole.is_span

    @cached_property
    def measured(self) -> Mask:
        return self.whole.measured

    @property
    def detached(self) -> Mask:
        return self.whole.detached

    @cached_property
    def inner(self) -> Int:
        return self.whole.inner

    @cached_property
    def exclusive(self) -> Float:
        return self.whole.exclusive

    @cached_property
    def own(self) -> Float:
        return self.whole.own

    @cached_property
    def of_row(self) -> npt.NDArray[np.int32]:
        raise TypeError("rows of other variants are on none of these tracks: ask track_of")

    @cached_property
    def has_regions(self) -> Mask:
        return self.whole.has_regions[self.tracks]

    @cached_property
    def row_bounds(self) -> Int:
        return self.whole.row_bounds

    @cached_property
    def cycles_per_ns(self) -> float:
        return self.whole.cycles_per_ns

    def purposes(self, waits: str | None = None) -> list[Purpose]:
        return self.whole.purposes(waits)

    def waiting(self, waits: str | None = None) -> Mask:
        return self.whole.waiting(waits)

    def purpose_of(self, waits: str | None = None) -> dict[str, Purpose]:
        return self.whole.purpose_of(waits)

    # --- what is its own

    def track_of(self, rows: Int) -> Int:
        return np.searchsorted(self.first, rows, side="right") - 1

    def spans_of(self, name: str, measured: bool = False) -> Int | slice:
        rows = self.rows_of(np.flatnonzero(self.tracks_of(name)))
        return rows[(self.measured if measured else self.is_span)[rows]]

    def spans_in(self, tracks: Mask, regions: Mask) -> Int:
        rows = self.rows_of(np.flatnonzero(tracks))
        return rows[regions[self.region[rows]] & self.is_span[rows]]

    def per_track(self, name: str) -> Int:
        if name not in self._per_track:
            self._per_track[name] = self.whole.per_track(name)[self.tracks]
        return self._per_track[name]

    @cached_property
    def cells(self) -> RegionCells:
        found = {one.name: getattr(self.whole.cells, one.name)[self.cells_at] for one in fields(RegionCells)}
        return RegionCells(**{**found, "track": np.searchsorted(self.tracks, found["track"])})

    @cached_property
    def extents(self) -> TrackExtents:
        whole = self.whole.extents
        return TrackExtents(*(getattr(whole, one.name)[self.tracks] for one in fields(TrackExtents)))

    @cached_property
    def _launches(self) -> tuple[tuple[LaunchLifetime, ...], Int]:
        launches = tuple(self.whole.launches[at] for at in self._launch_numbers.tolist())
        return launches, np.searchsorted(self._launch_numbers, self.whole.launch[self.tracks])

    @cached_property
    def _blocks(self) -> tuple[Blocks, Int]:
        whole = self.whole.blocks
        kept = [np.arange(of.start, of.stop) for of in map(self.whole.blocks_of, self._launch_numbers.tolist())]
        at = np.concatenate(kept)
        found = Blocks(*(getattr(whole, one.name)[at] for one in fields(Blocks)))
        launch = np.searchsorted(self._launch_numbers, found.launch)
        return replace(found, launch=launch), np.searchsorted(at, self.whole.block[self.tracks])


class _Groups:
    """The tracks and cells of every variant."""

    def __init__(self, lives: Lifetimes) -> None:
        self.numbers = {label: number for number, label in enumerate(lives.variants)}
        self.tracks = in_groups(lives.variant, len(self.numbers))
        self.cells = in_groups(lives.variant[lives.cells.track], len(self.numbers))


def _groups_of(lives: Lifetimes) -> _Groups:
    found = lives.trace.derived.get(_Groups)
    if not isinstance(found, _Groups):
        found = lives.trace.derived[_Groups] = _Groups(lives)
    return found
