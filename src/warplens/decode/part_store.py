"""Puts decoded parts together, in arrays that grow: a part is copied once, however many follow it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.decode.aggregate_tracks import ExpandedLaunch
from warplens.decode.decoded_part import (
    PER_ANCHOR,
    PER_ROW,
    DecodedPart,
    Decoder,
    HeadersRead,
    check_rows,
    decode_part,
    renamed,
)
from warplens.decode.decoded_rows import MAX_DETAILS, Counter, DecodedRows, Detail, RowPlan
from warplens.decode.track_windows import PER_TRACK, TrackWindows
from warplens.record.capture import Device, Launch
from warplens.trace.parquet_pieces import Piece
from warplens.trace.row_groups import row_groups

_PAYLOADS = ("value", "has_value")
"""Columns that are empty where no record has a payload."""
_LEAST = 1 << 12

Array = npt.NDArray[Any]


class _Growing:
    """An array that values are added to at the end. Memory beyond them is reserved, not used."""

    def __init__(self) -> None:
        self._buffer, self.used = np.empty(0, np.int64), 0

    @property
    def values(self) -> Array:
        return self._buffer[: self.used]

    def add(self, values: Array) -> Array:
        """Copy values to the end; return them where they are now."""
        end = self.used + len(values)
        if not self.used and self._buffer.dtype != values.dtype:
            self._buffer = np.empty(0, values.dtype)
        if end > len(self._buffer):
            larger = np.empty(max(2 * end, _LEAST), values.dtype)
            larger[: self.used] = self.values
            self._buffer = larger
        added = self._buffer[self.used : end]
        added[:], self.used = values, end
        return added


class PartStore:
    """Parts in the order of their launches, as one part."""

    def __init__(self) -> None:
        self.sources: list[Launch] = []
        self.encoded: dict[tuple[int, int], list[Piece]] = {}
        """By first row and end, row groups of the trace's file of which some columns are encoded."""
        self._launches: list[Launch] = []
        self._expanded: list[ExpandedLaunch | None] = []
        self._names: dict[str, int] = {}
        self._covered: list[dict[str, float]] = []
        self._details: list[Detail] = []
        self._counters = np.zeros(len(Counter), np.int64)
        self._unwritten = self._invalid = 0
        self._arrays = {name: _Growing() for name in (*PER_TRACK, *PER_ROW, *PER_ANCHOR, "holds")}
        starts = ("bounds", "row_start", "anchor_start")
        self._arrays |= {name: _Growing() for name in starts}
        for name in starts:
            self._arrays[name].add(np.zeros(1, np.int64))

    def whole_groups(self) -> list[tuple[int, int]]:
        """The row groups of the trace's file that no further launch changes: first row and end."""
        starts, bounds = (self._arrays[name].values for name in ("row_start", "bounds"))
        return row_groups(starts[:-1], starts[bounds[:-1]], len(self))[:-1]

    def add(self, part: DecodedPart) -> None:
        """Add a part behind the others."""
        arrays, windows, rows, plan = self._arrays, part.windows, part.rows, part.plan
        first_track, first_row = arrays["offset"].used, arrays["start"].used
        check_rows(first_row + len(rows.start))
        for name in PER_TRACK:
            arrays[name].add(getattr(windows, name))
        arrays["holds"].add(plan.holds)
        arrays["bounds"].add(windows.bounds[1:] + first_track)
        arrays["row_start"].add(plan.row_start[1:] + first_row)
        arrays["anchor_start"].add(plan.anchor_start[1:] + arrays["anchor_ns"].used)
        for name in (*PER_ROW, *PER_ANCHOR):
            if name not in _PAYLOADS:
                arrays[name].add(getattr(rows, name))
        self._add_payloads(rows, first_row)
        if first_row:
            parent = arrays["parent"].values[first_row:]
            np.add(parent, np.int32(first_row), out=parent, where=parent >= 0)
        for name in part.names:
            self._names.setdefault(name, len(self._names))
        region = arrays["region"].values[first_row:]
        region[:] = renamed(region, part.names, self._names)
        self.sources += part.sources
        self._launches += part.launches
        self._expanded += part.expanded
        self._covered += part.covered
        self._details += [replace(detail, track=detail.track + first_track) for detail in part.details]
        self._counters += rows.counters
        self._unwritten += windows.unwritten
        self._invalid += windows.invalid

    def _add_payloads(self, rows: DecodedRows, before: int) -> None:
        for name in _PAYLOADS:
            values, column = getattr(rows, name), self._arrays[name]
            if len(values) and column.used < before:
                column.add(np.zeros(before - column.used, values.dtype))
            if len(values) or column.used:
                column.add(values if len(values) else np.zeros(len(rows.start), values.dtype))

    def __len__(self) -> int:
        return self._arrays["start"].used

    def part(self) -> DecodedPart:
        """All parts as one; its arrays are the store's own."""
        arrays = {name: array.values for name, array in self._arrays.items()}
        windows = TrackWindows(
            **{name: arrays[name] for name in PER_TRACK},
            bounds=arrays["bounds"],
            unwritten=self._unwritten,
            invalid=self._invalid,
        )
        rows = DecodedRows(**{name: arrays[name] for name in (*PER_ROW, *PER_ANCHOR)}, counters=self._counters)
        plan = RowPlan(arrays["row_start"], arrays["anchor_start"], arrays["holds"])
        return DecodedPart(
            self.sources,
            self._launches,
            self._expanded,
            list(self._names),
            windows,
            plan,
            rows,
            self._covered,
            self._details[:MAX_DETAILS],
        )


def decode_all(
    launches: Sequence[Launch], device: Device, decoder: Decoder, known: PartStore, read: HeadersRead
) -> DecodedPart:
    """Launches as one part. Those that `known` has are not decoded again; it may have others, too. Where it has none of
    them, `read` is called when the headers of all are read."""
    pieces, parts = _known_pieces(launches, known), known.part()
    store, at = PartStore(), 0
    if pieces == [(0, 0, len(known.sources))]:
        store, at, pieces = known, len(known.sources), []
    elif not parts.is_clean:
        pieces = []  # what it counted may be that of launches which were left out
    if not at and not pieces:
        return decode_part(launches, device, decoder, read)
    for first, begin, end in [*pieces, (len(launches), 0, 0)]:
        if first > at:
            store.add(decode_part(launches[at:first], device, decoder))
        if end:
            store.add(parts.cut(begin, end))
        at = first + end - begin
    return store.part()


def _known_pieces(launches: Sequence[Launch], known: PartStore) -> list[tuple[int, int, int]]:
    """The runs of launches that are known: the number of the first, and of the first and past the last one there. None
    where they are few: to decode these again takes less time than to copy the others."""
    place = {id(launch.raw): at for at, launch in enumerate(known.sources)}
    found = np.array([place.get(id(launch.raw), -1) for launch in launches], np.int64)
    there = np.flatnonzero(found >= 0)
    tracks = np.array([launch.tracks for launch in launches], np.int64)
    if not len(there) or 2 * tracks[there].sum() < tracks.sum():
        return []
    first = np.append(0, np.flatnonzero((np.diff(there) != 1) | (np.diff(found[there]) != 1)) + 1)
    runs = zip(first.tolist(), [*first[1:].tolist(), len(there)], strict=True)
    return [(int(there[a]), int(found[there[a]]), int(found[there[b - 1]]) + 1) for a, b in runs]
