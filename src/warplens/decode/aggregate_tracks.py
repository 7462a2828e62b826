"""Tracks of `mode="aggregate"` as tracks of records, so that one decoder serves both.

Each row of a track becomes one span as long as all its durations together, laid out from the warp's start: the rows
inside it come one after the other from its begin. The columns that only such a trace has say what the span stands for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from warplens.errors import CaptureError
from warplens.launch.block_sampler import headers_of
from warplens.record.aggregate_rows import (
    AGGREGATE,
    BUCKETS,
    AggregateLayout,
    AggregateTracks,
    adds_up,
    bucket_of,
    read_aggregates,
)
from warplens.record.capture import Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, Kind, TrackState, track_stride, word0
from warplens.trace.columns import Columns
from warplens.trace.schema import AGGREGATE_COLUMNS, LIFE

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ExpandedLaunch:
    """A launch of records, and for each of its rows in the trace what it stands for: arrays over rows. `damaged` rows
    were left out."""

    launch: Launch
    count: Int
    total: Int
    least: Int
    most: Int
    histogram: Int
    damaged: int


def expand(launch: Launch) -> ExpandedLaunch | None:
    """The launch as one of records; None if it is one already."""
    document = launch.extra.get(AGGREGATE)
    if document is None:
        return None
    try:
        layout = AggregateLayout.restore(document)
    except ValueError as error:
        raise CaptureError(f"kernel {launch.kernel!r}", AGGREGATE, str(error), "capture again") from None
    if layout.slots > launch.capacity and launch.tracks:
        problem = f"its rows need {layout.slots} slots, and its tracks have {launch.capacity}"
        raise CaptureError(f"kernel {launch.kernel!r}", AGGREGATE, problem, "capture again")
    slots = launch.raw.reshape(launch.tracks, launch.stride)[:, HEADER_BYTES:]
    found = read_aggregates(layout, slots)
    headers = headers_of(launch).copy()
    begun = headers["magic"] == TRACK_MAGIC
    present = (found.count != 0) & begun[:, None]
    damaged = present & ~adds_up(found.count, found.total, found.least, found.most)
    if layout.work in launch.regions:
        whole = begun & (headers["state"] == TrackState.EXITED) & ~damaged.any(axis=1)
        life = headers["exit_clock"].astype(np.int64) - headers["start_clock"].astype(np.int64)
        layout, found = found.with_work(layout, np.where(whole, life, -1))
        present = np.column_stack((present, found.count[:, -1] != 0))
        damaged = np.column_stack((damaged, np.zeros(launch.tracks, bool)))
    present &= ~damaged
    found.total[damaged] = 0
    walked, events = _walk(layout)
    order = np.asarray(walked, np.int64)
    capacity = 4 * len(layout.rows)
    words = np.zeros((launch.tracks, capacity), np.uint64)
    begin, length = _placed(layout, walked, found, headers["start_clock"].astype(np.int64))
    at = np.zeros(launch.tracks, np.int64)
    for row, kind in events:
        clock = begin[:, row] + (length[:, row] if kind is Kind.END else 0)
        here = np.flatnonzero(present[:, row])
        low = (clock[here] & 0xFFFFFFFF).astype(np.uint64)
        words[here, at[here]] = clock[here].astype(np.uint64)
        words[here, at[here] + 1] = np.uint64(word0(Kind.ANCHOR, layout.rows[row].region, kind)) | low << np.uint64(32)
        at[here] += 2
    headers["written"] = np.where(begun, at, headers["written"])
    raw = np.zeros((launch.tracks, track_stride(capacity)), np.uint8)
    raw[:, :HEADER_BYTES] = np.ascontiguousarray(headers).view(np.uint8).reshape(-1, HEADER.itemsize)
    raw[:, HEADER_BYTES : HEADER_BYTES + capacity * SLOT_BYTES] = words.view(np.uint8)
    track, place = np.nonzero(present[:, order])
    rows = order[place]
    histogram = np.zeros((len(rows), BUCKETS), np.int64)
    for number, one in enumerate(layout.spans):
        mine = rows == one
        histogram[mine] = found.histogram[track[mine], number]
    made = replace(launch, raw=raw.reshape(-1), capacity=capacity, stride=track_stride(capacity), full="stop")
    count, total, least, most = (array[track, rows] for array in (found.count, found.total, found.least, found.most))
    return ExpandedLaunch(made, count, total, least, most, histogram, int(damaged.sum()))


def _walk(layout: AggregateLayout) -> tuple[list[int], list[tuple[int, Kind]]]:
    """The rows in the order of their begins, and their begins and ends in the order of time."""
    inside: dict[int, list[int]] = {}
    for number, one in enumerate(layout.rows):
        inside.setdefault(one.parent, []).append(number)
    order: list[int] = []
    events: list[tuple[int, Kind]] = []
    work: list[tuple[int, Kind]] = [(row, Kind.BEGIN) for row in reversed(inside.get(-1, []))]
    while work:
        row, kind = work.pop()
        if kind is Kind.END:
            events.append((row, kind))
            continue
        order.append(row)
        instant = layout.rows[row].kind == "instant"
        events.append((row, Kind.INSTANT if instant else Kind.BEGIN))
        if not instant:
            work.append((row, Kind.END))
            work += [(child, Kind.BEGIN) for child in reversed(inside.get(row, []))]
    return order, events


def _placed(layout: AggregateLayout, order: Sequence[int], found: AggregateTracks, start: Int) -> tuple[Int, Int]:
    """The clock at which each row is laid out to begin, and how long it lasts there, as [track, row].

    A row lasts as long as its durations together. Only one that was never closed, or that regions inside it outlived,
    lasts as long as those.
    """
    length, begin = found.total.copy(), np.zeros(found.count.shape, np.int64)
    inner = np.zeros(found.count.shape, np.int64)
    for row in reversed(order):
        length[:, row] = np.maximum(length[:, row], inner[:, row])
        if layout.rows[row].parent >= 0:
            inner[:, layout.rows[row].parent] += length[:, row]
    free = {-1: start.copy()}
    for row in order:
        parent = layout.rows[row].parent
        begin[:, row] = free[row] = free[parent]
        free[parent] = free[parent] + length[:, row]
    return begin, length


class AggregateColumns:
    """The columns of a trace with those that say what its spans stand for."""

    def __init__(self, columns: Columns, launches: Sequence[Launch], expanded: Sequence[ExpandedLaunch | None]) -> None:
        self._columns, self.rows = columns, columns.rows
        launch = columns.column("launch").to_numpy(zero_copy_only=False)
        cycles = columns.column("dur_cycles").to_numpy(zero_copy_only=False).astype(np.int64)
        self._count = np.ones(self.rows, np.int64)
        self._total, self._least, self._most = cycles.copy(), cycles.copy(), cycles.copy()
        self._bucket = bucket_of(cycles)
        self._histograms: dict[int, tuple[npt.NDArray[np.intp], Int]] = {}
        for number, one in enumerate(expanded):
            if one is None:
                continue
            rows = np.flatnonzero(launch == number)
            if len(rows) != len(one.count):
                rows = rows[~self._is_life()[rows]]
            if len(rows) != len(one.count):
                problem = f"{len(rows)} of its {len(one.count)} rows are whole"
                raise CaptureError(f"kernel {launches[number].kernel!r}", AGGREGATE, problem, "capture again")
            self._count[rows], self._total[rows] = one.count, one.total
            self._least[rows], self._most[rows] = one.least, one.most
            self._histograms[number] = rows, one.histogram

    def _is_life(self) -> npt.NDArray[np.bool_]:
        """Whether each row is the life of a warp that executed no region (warp_lives.py)."""
        is_life: npt.NDArray[np.bool_] = pc.equal(self._columns.column("region"), LIFE).to_numpy(zero_copy_only=False)
        return is_life

    def column(self, name: str) -> pa.Array:
        makers = {"count": self._count, "min_cycles": self._least, "max_cycles": self._most, "dur_cycles": self._total}
        if name in makers:
            return pa.array(makers[name])
        return self._sparse(name) if name in AGGREGATE_COLUMNS else self._columns.column(name)

    def _sparse(self, name: str) -> pa.Array:
        """The buckets of each row that count something, or their counts."""
        rows, buckets, counts = [], [], []
        apart = np.ones(self.rows, bool)
        for at, histogram in self._histograms.values():
            row, bucket = np.nonzero(histogram)
            rows.append(at[row])
            buckets.append(bucket)
            counts.append(histogram[row, bucket])
            apart[at] = False
        alone = np.flatnonzero(apart)
        rows.append(alone)
        buckets.append(self._bucket[alone])
        counts.append(np.ones(len(alone), np.int64))
        row, bucket, count = (np.concatenate(parts) for parts in (rows, buckets, counts))
        order = np.argsort(row, kind="stable")
        offsets = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=self.rows)))).astype(np.int32)
        values = bucket[order].astype(np.int16) if name == "buckets" else count[order].astype(np.int64)
        return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values))
