"""The column `released_by`: for each wait on a barrier, the row of the arrival that released it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.decode.barrier_syncs import Participants, last_arrivals
from warplens.decode.decoded_rows import BARRIER_VALUE, INSTANT, SPAN, DecodedRows
from warplens.decode.mbarrier_phases import BarrierArrivals, BarrierWaits, releases
from warplens.record.barrier_words import OFFSET_BITS, Operation
from warplens.record.capture import Launch
from warplens.trace.barrier_rows import (
    COPIES,
    IMMEDIATE_CYCLES,
    NO_WAIT,
    UNKNOWN_ARRIVAL,
    BarrierWords,
    Int,
    Mask,
    began_before,
    did_wait,
    is_barrier_word,
)

_OFFSET = (1 << OFFSET_BITS) - 1
_ARRIVALS = (Operation.ARRIVE, Operation.COPY, Operation.MULTICAST, Operation.REMOTE_ARRIVE)
_NAMED = (Operation.SYNC, Operation.NAMED_ARRIVE)
_CLUSTER = (Operation.CLUSTER_ARRIVE, Operation.CLUSTER_WAIT)
SLOW_TEST_CYCLES = 1024
"""The longest that the test of a completed barrier takes on a busy SM; a CuTe GEMM on an H200 had up to 607 cycles."""
_ENOUGH_WAITS, _MOST_SOON, _SOON_CYCLES = 8, 0.9, 384
"""How many waits of a region show that no arrival goes unrecorded, the share of them that must go on soon after the
arrival, and how soon: the same GEMM had 51 to 241 cycles."""


@dataclass(frozen=True)
class TrackPlaces:
    """Where the track of each row ran: arrays per track, and the first row of each track."""

    launch: Int
    block: Int
    warp: Int
    row_start: Int

    def of(self, rows: Int) -> Int:
        return np.searchsorted(self.row_start, rows, side="right") - 1


def pair_events(rows: DecodedRows, places: TrackPlaces) -> None:
    """Make a span of each region that a warp began and a warp of its block ended; the end becomes an instant. A warp
    that began one ends its own; any other ends the oldest."""
    records = barrier_records(rows)
    words = BarrierWords(rows.value[records])
    starts = records[words.operation == Operation.EVENT_START]
    ends = records[words.operation == Operation.EVENT_END]
    if not len(starts) + len(ends):
        return
    both = np.concatenate([starts, ends])
    track = places.of(both)
    key = np.stack(
        [places.launch[track], places.block[track], rows.region[both], rows.value[both].astype(np.int64) & 0xFFFFFFFF]
    )
    is_end = np.arange(len(both)) >= len(starts)
    order = np.lexsort((is_end, rows.start[both], *key))
    open_starts: dict[tuple[int, ...], list[int]] = {}
    for at in order.tolist():
        waiting = open_starts.setdefault(tuple(key[:, at].tolist()), [])
        if not is_end[at]:
            waiting.append(at)
        elif waiting:
            own = next((number for number, start in enumerate(waiting) if track[start] == track[at]), 0)
            start = both[waiting.pop(own)]
            rows.duration[start] = rows.start[both[at]] - rows.start[start]
    unclosed = [int(both[at]) for waiting in open_starts.values() for at in waiting]
    rows.kind[starts], rows.kind[ends] = SPAN, INSTANT
    rows.has_value[both] = 0
    rows.open[unclosed] = 1


def barrier_records(rows: DecodedRows) -> Int:
    return np.flatnonzero(rows.has_value == BARRIER_VALUE) if len(rows.has_value) else np.empty(0, np.int64)


def invalid_words(rows: DecodedRows) -> Int:
    """The barrier records whose value is no barrier word: their payload was damaged."""
    records = barrier_records(rows)
    return records[~is_barrier_word(rows.value[records])]


def released_by(
    rows: DecodedRows, places: TrackPlaces, start_ns: Int, dur_ns: Int, launches: Sequence[Launch]
) -> tuple[Int, npt.NDArray[np.int32]]:
    """The rows that are barrier records, and their values in the column `released_by`."""
    records = barrier_records(rows)
    out = np.full(len(records), NO_WAIT, np.int32)
    if not len(records):
        return records, out
    events = _Events(rows, places, start_ns, dur_ns, launches, records)
    for wait, arrival in (events.mbarriers(), events.named(), events.clusters()):
        out[np.searchsorted(records, wait)] = arrival
    return records, out


class _Events:
    """The barrier records of a capture, with the place and the times of each."""

    def __init__(
        self,
        rows: DecodedRows,
        places: TrackPlaces,
        start_ns: Int,
        dur_ns: Int,
        launches: Sequence[Launch],
        records: Int,
    ) -> None:
        self.rows, self.records, self.launches = rows, records, launches
        self.words = BarrierWords(rows.value[records])
        self.track = places.of(records)
        self.launch, self.block, self.warp = (getattr(places, name)[self.track] for name in ("launch", "block", "warp"))
        # A wait is the span around its record, of the same name; an arrival has no span of its own.
        parent = rows.parent[records]
        own = (parent >= 0) & (rows.region[np.maximum(parent, 0)] == rows.region[records])
        self.span = np.where(own, parent, records)
        self.cycle, self.ns = rows.start[records], start_ns[records]
        begun = np.where(began_before(self.words), self.span, records)
        self.begin, self.begin_ns = rows.start[begun], start_ns[begun]
        self.end, self.end_ns = (rows.start + rows.duration)[self.span], (start_ns + dur_ns)[self.span]

    def mbarriers(self) -> tuple[Int, Int]:
        """Waits on mbarriers, and the row of each one's arrival.

        Barriers that other blocks arrive at are compared in ns, because each SM has its own clock.
        """
        wait = np.flatnonzero(self.words.is_any((Operation.WAIT, Operation.WAIT_STATE)))
        arrival, block = self._arrivals_with_targets()
        if not len(wait):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        offset = self.words.barrier & _OFFSET
        both = np.concatenate([wait, arrival])
        number = _numbered(self.launch[both], np.concatenate([self.block[wait], block]), offset[both])
        wait_number, arrival_number = number[: len(wait)], number[len(wait) :]
        foreign = np.unique(arrival_number[block != self.block[arrival]])
        release = np.full(len(wait), -1, np.int64)
        for remote in (False, True):
            mine = np.flatnonzero(np.isin(wait_number, foreign) == remote)
            of = np.flatnonzero(np.isin(arrival_number, foreign) == remote)
            if not len(mine):
                continue
            begin, end, time = (self.begin_ns, self.end_ns, self.ns) if remote else (self.begin, self.end, self.cycle)
            at = wait[mine]
            waits = BarrierWaits(
                wait_number[mine], begin[at], end[at], self.words.parity[at],
                self._own_arrivals(at, wait_number[mine], arrival[of], arrival_number[of], time),
                self.words.operation[at] == Operation.WAIT_STATE,
            )  # fmt: skip
            is_copy = self.words.is_any(COPIES)[arrival[of]]
            found = releases(waits, BarrierArrivals(arrival_number[of], time[arrival[of]], is_copy))
            release[mine] = np.where(found >= 0, arrival[of][found] if len(of) else -1, -1)
        return self.records[wait], self._judged(wait, release)

    def _judged(self, wait: Int, release: Int) -> Int:
        """The rows of the arrivals; without one, whether the wait waited at all."""
        begin, end = self.begin[wait], self.end[wait]
        lasted = end - begin > IMMEDIATE_CYCLES
        known = release >= 0
        at = np.maximum(release, 0)
        foreign, copy = self.block[at] != self.block[wait], self.words.is_any(COPIES)[at]
        waited = np.where(foreign, self.ns[at] > self.begin_ns[wait], did_wait(begin, end, self.cycle[at], copy))
        # A long wait for an arrival that came before it began was for something else, which is not recorded.
        missing = lasted & ~(known & (waited | copy))
        # Unless no arrival of that region goes unrecorded: then the warp only was slow to test its barrier.
        complete = self._complete(wait, known & waited & ~(foreign | copy), end - self.cycle[at])
        missing &= ~(complete & (end - begin <= SLOW_TEST_CYCLES))
        return np.where(missing, UNKNOWN_ARRIVAL, np.where(known, self.records[at], NO_WAIT))

    def _complete(self, wait: Int, waited: Mask, woke_after: Int) -> Mask:
        """Whether each wait's region goes on right after a recorded arrival whenever it has to wait for one."""
        region = self.rows.region[self.records[wait]]
        many = np.bincount(region, waited)
        soon = np.bincount(region, waited & (woke_after <= _SOON_CYCLES))
        return np.asarray(((many >= _ENOUGH_WAITS) & (soon >= _MOST_SOON * many))[region])

    def _own_arrivals(self, wait: Int, number: Int, arrival: Int, arrival_number: Int, time: Int) -> Int:
        """The time of each waiting warp's own last arrival at its barrier, for waits that name no parity."""
        own = np.full(len(wait), -1, np.int64)
        state = np.flatnonzero(self.words.operation[wait] == Operation.WAIT_STATE)
        by_place: dict[tuple[int, int], list[int]] = {}
        for at in np.argsort(time[arrival], kind="stable").tolist() if len(state) else ():
            by_place.setdefault((int(self.track[arrival[at]]), int(arrival_number[at])), []).append(
                int(time[arrival[at]])
            )
        for at in state.tolist():
            times = np.array(by_place.get((int(self.track[wait[at]]), int(number[at])), []), np.int64)
            before = int(np.searchsorted(times, time[wait[at]], side="right"))
            own[at] = times[before - 1] if before else -1
        return own

    def _arrivals_with_targets(self) -> tuple[Int, Int]:
        """The arrivals and the block whose barrier each arrives at; a multicast copy counts once for each block."""
        arrival = np.flatnonzero(self.words.is_any(_ARRIVALS))
        block = self.block[arrival].copy()
        operation = self.words.operation[arrival]
        for at in np.flatnonzero(operation == Operation.REMOTE_ARRIVE).tolist():
            extra = int(self.words.extra[arrival[at]])
            target = int(self.words.barrier[arrival[at]]) >> OFFSET_BITS & 15
            shape = (extra >> 4 & 15) + 1, (extra >> 8 & 15) + 1
            block[at] = self._neighbour(int(arrival[at]), extra & 15, target, shape)
        more: list[int] = []
        targets: list[int] = []
        for at in np.flatnonzero(operation == Operation.MULTICAST).tolist():
            high = int(self.words.barrier[arrival[at]]) >> OFFSET_BITS
            ranks = [rank for rank in range(16) if self.words.extra[arrival[at]] >> rank & 1]
            blocks = [self._neighbour(int(arrival[at]), high & 15, rank, ((high >> 4 & 15) + 1, 16)) for rank in ranks]
            block[at] = blocks[0] if blocks else block[at]
            more += [int(arrival[at])] * (len(blocks) - 1)
            targets += blocks[1:]
        return np.append(arrival, np.array(more, np.int64)), np.append(block, np.array(targets, np.int64))

    def _neighbour(self, at: int, own: int, target: int, shape: tuple[int, int]) -> int:
        """The block of rank `target` in the cluster of the block that made a record."""
        gx, gy, _ = self.launches[int(self.launch[at])].grid
        block = int(self.block[at])
        place = block % gx, block // gx % gy, block // (gx * gy)
        before, after = _in_cluster(own, shape), _in_cluster(target, shape)
        x, y, z = (one - old + new for one, old, new in zip(place, before, after, strict=True))
        return x + gx * (y + gy * z)

    def named(self) -> tuple[Int, Int]:
        """Warps that left a named barrier, and the record of the warp that came last."""
        at = np.flatnonzero(self.words.is_any(_NAMED))
        sync = self.words.operation[at] == Operation.SYNC
        warps = np.array([-(-_threads(launch) // 32) for launch in self.launches], np.int64)[self.launch[at]]
        threads = self.words.extra[at]
        return self._together(
            at,
            _numbered(self.launch[at], self.block[at], self.words.barrier[at]),
            np.where(sync, self.begin[at], self.cycle[at]),
            np.where(sync, self.end[at], -1),
            np.where(threads > 0, -(-threads // 32), warps),
        )

    def clusters(self) -> tuple[Int, Int]:
        """Warps that left a cluster barrier, and the arrival that came last in the cluster."""
        at = np.flatnonzero(self.words.is_any(_CLUSTER))
        if not len(at):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        is_wait = self.words.operation[at] == Operation.CLUSTER_WAIT
        order = np.lexsort((self.ns[at], self.track[at]))
        # A warp arrives, and waits later: each wait belongs to the arrival before it.
        ordered = at[order]
        pairs = np.flatnonzero(
            ~is_wait[order][:-1] & is_wait[order][1:] & (self.track[ordered][:-1] == self.track[ordered][1:])
        )
        left = np.full(len(self.records), -1, np.int64)
        left[ordered[pairs]] = self.end_ns[ordered[pairs + 1]]
        arrive = at[~is_wait]
        number = _numbered(self.launch[arrive], self.words.barrier[arrive])
        group = Participants(number, self.track[arrive], self.ns[arrive], left[arrive], np.zeros(len(arrive), np.int64))
        last = last_arrivals(group, tolerance=100)
        released = np.full(len(self.records), -1, np.int64)
        released[arrive] = np.where(last >= 0, arrive[np.maximum(last, 0)], -1)
        wait, arrival = ordered[pairs + 1], released[ordered[pairs]]
        return self.records[wait], self.records[arrival]

    def _together(self, at: Int, number: Int, arrived: Int, left: Int, expected: Int) -> tuple[Int, Int]:
        if not len(at):
            return np.empty(0, np.int64), np.empty(0, np.int64)
        last = last_arrivals(Participants(number, self.warp[at], arrived, left, expected))
        waits = left >= 0
        own = last == np.arange(len(at))
        return self.records[at[waits]], np.where(own, NO_WAIT, self.records[at[last]])[waits]


def _in_cluster(rank: int, shape: tuple[int, int]) -> tuple[int, int, int]:
    nx, ny = shape
    return rank % nx, rank // nx % ny, rank // (nx * ny)


def _numbered(*columns: Int) -> Int:
    """Number the distinct combinations of columns whose values fit in 32 bits."""
    number = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        number = np.unique(number << 32 | column, return_inverse=True)[1].reshape(-1)
    return number


def _threads(launch: Launch) -> int:
    return launch.block[0] * launch.block[1] * launch.block[2]
