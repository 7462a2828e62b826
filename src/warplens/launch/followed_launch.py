"""Follows a launch while its kernel runs: each update copies what its warps have recorded since the last one."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import numpy.typing as npt

from warplens.launch.landing import describe_launch, join_slots
from warplens.launch.running_clocks import RunningClocks
from warplens.launch.running_copy import RunningCopy
from warplens.launch.running_launch import record_of_running
from warplens.launch.side_copy import RowCopy, Rows
from warplens.launch.track_history import Slots, TrackHistory, newest_slot, whole_records
from warplens.launch.woven import WovenLaunch
from warplens.record.capture import HANG, SAMPLED, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, TrackState
from warplens.record.running_tracks import HangRecord
from warplens.weave.fixed_slots import STORE as FIXED
from warplens.weave.weaving import capacity_of

HISTORY_SLOTS, LEAST_SLOTS = 1 << 17, 1024
"""Slots that are kept of one launch, and the fewest of one track: of a launch with more tracks, some blocks are
followed."""
RING_BYTES = 32 << 20
"""Bytes of rings that one update may copy: what is new in a ring shows only when all of it was copied."""
FIRST_SLOTS, GROWTH = 256, 8
"""Slots that are copied first behind what is known of a track; if all were written, so many times as many come next."""
MOST_LOOKS = 512
"""Updates that are remembered, to complete the clocks of old records."""
LIVE = "live"
"""The cause in the `HangRecord` of a launch that was copied because somebody watches it."""

_AHEAD_CYCLES = 1 << 30
"""How far a clock may be ahead of what is expected of it: half a second. The records of a ring are not older than the
last update, so that none of them seems newer than that."""

Headers = npt.NDArray[np.void]
Int64 = npt.NDArray[np.int64]


class FollowedLaunch:
    """One launch, for one thread. Of a launch with many blocks, some are followed, spread evenly over the grid."""

    def __init__(self, launch: WovenLaunch) -> None:
        kernel = launch.kernel
        self.launch = launch
        self._ring = kernel.full == "ring"
        self._capacity = capacity_of(launch.shift, kernel.full, kernel.slack)
        self._each = kernel.select.tracks_per_block(kernel.warps)
        self.recorded = launch.tracks // self._each
        most = HISTORY_SLOTS // LEAST_SLOTS
        if self._ring:
            most = min(most, RING_BYTES // (self._capacity * SLOT_BYTES))
        count = max(1, min(self.recorded, most // self._each))
        self._blocks = [at * self.recorded // count for at in range(count)]
        self._tracks = [block * self._each + at for block in self._blocks for at in range(self._each)]
        room = max(HISTORY_SLOTS // len(self._tracks), 1)
        self._history = TrackHistory(len(self._tracks), room if self._ring else min(room, max(self._capacity, 1)))
        self._next = np.zeros(len(self._tracks), np.int64)
        """The slot of each track that comes after the last one read."""
        self._done = np.zeros(len(self._tracks), bool)
        self._places: dict[int, tuple[int, int]] = {}
        """The block and the warp of each track."""
        self._rings: Slots | None = None
        """The rings as they were at the last update."""
        self._looks: deque[tuple[Int64, Int64]] = deque(maxlen=MOST_LOOKS)
        """At each update, the position and the clock that each track had reached."""
        self._begins: dict[int, list[tuple[int, int]]] = {}
        """Regions that were open at the last update, by track: their number and clock."""
        self._clocks = RunningClocks(len(self._tracks), (launch.device or launch.engine.device).clock_mhz)

    @property
    def records(self) -> int:
        """Slots that were read so far."""
        return int(self._history.added.sum())

    @property
    def full_tracks(self) -> int:
        """Tracks that have no room for further records."""
        return int(self._is_full().sum())

    def _is_full(self) -> npt.NDArray[np.bool_]:
        stops = not self._ring and self.launch.kernel.store != FIXED
        return (self._next >= self._capacity - 1) & stops  # a value that does not fit leaves the last slot empty

    def update(self, device_ns: Callable[[], int] = time.time_ns) -> Launch | None:
        """The launch with the latest records of its followed blocks, as if its warps had exited now; None where it has
        ended or cannot be read. `device_ns` tells the time of the device's globaltimer."""
        copy = self.launch.engine.running_copy
        if copy is None or self.launch.kernel.aggregate:
            return None
        start = time.perf_counter()
        before = self._history.added.copy()
        with copy.inside():
            if not self.launch.in_flight:
                return None
            rows = np.concatenate(copy.all_rows(list(self._block_copies(0, HEADER_BYTES))))
            headers = rows.view(HEADER).reshape(-1)
            now_ns = device_ns()
            if self._ring:
                self._read_rings(copy, headers, now_ns)
            else:
                self._read_tracks(copy, headers)
            if not self.launch.in_flight:
                return None
        self._done = headers["state"] == TrackState.EXITED
        found = zip(headers["block"].tolist(), headers["warp"].tolist(), strict=True)
        self._places = dict(enumerate(found))
        record = replace(record_of_running(headers), now_ns=now_ns, cause=LIVE)
        latest, now = self._clocks.update(headers, self._history.newest, self._history.added - before, now_ns)
        self._looks.append((self._history.position(), now))
        self._end_now(headers, latest, now, now_ns)
        return self._described(rows, record, time.perf_counter() - start)

    def keep_open(self, begins: Mapping[tuple[int, int], list[tuple[int, int]]]) -> None:
        """Remember what was open at the last update: by block and warp, the number of each region and the clock of its
        begin, the outermost first. Their begins are kept when older records go."""
        self._begins = {at: begins[place] for at, place in self._places.items() if place in begins}

    def _with_begins(self) -> Slots:
        slots = self._history.slots
        for track in np.flatnonzero(self._history.lost).tolist():
            if begins := self._begins.get(track):
                slots = slots.copy() if slots is self._history.slots else slots
                slots[track] = self._history.with_begins(track, begins, partial(self._clock_at, track))
        return slots

    def _clock_at(self, track: int, position: int, low: int) -> int:
        """The clock of a record: that with these low bits which came last before the update that read it."""
        reached = next((int(now[track]) for total, now in self._looks if total[track] > position), low)
        return max(reached - (reached - low) % (1 << 32), 0)

    def _block_copies(self, begin: int, width: int) -> Iterator[RowCopy]:
        pitch = 1 << self.launch.shift
        for block in self._blocks:
            yield RowCopy(self.launch.address + block * self._each * pitch + begin, pitch, width, self._each)

    def _readable(self, headers: Headers) -> list[int]:
        """Tracks that have begun and were not read to their end."""
        found: list[int] = np.flatnonzero((headers["magic"] == TRACK_MAGIC) & ~self._done).tolist()
        return found

    def _read_tracks(self, copy: RunningCopy, headers: Headers) -> None:
        """Read tracks that are filled from their first slot on: what follows the last slot read, as far as it goes."""
        fixed = self.launch.kernel.store == FIXED
        left, width = self._readable(headers), FIRST_SLOTS
        if fixed:  # marks with fixed slots leave empty ones between them, and may fill those later
            width = self._capacity
            self._next[:] = 0
            for track in left:
                self._history.restart(track)
        while left:
            wide = [min(width, self._capacity - int(self._next[track])) for track in left]
            rows = copy.all_rows([self._slot_copy(track, count) for track, count in zip(left, wide, strict=True)])
            more = []
            for track, count, row in zip(left, wide, rows, strict=True):
                slots = row.view(np.uint64).reshape(-1)
                used = np.flatnonzero(slots)
                new = int(used[-1]) + 1 if len(used) else 0
                if headers["state"][track] != TrackState.EXITED:
                    new = whole_records(slots[:new], self.launch.kernel.regions)
                self._history.add(track, slots[:new])
                self._next[track] += new
                # A value of zero leaves one empty slot, never two in a row.
                if new and new >= count - 1 and self._next[track] < self._capacity:
                    more.append(track)
            left, width = ([] if fixed else more), width * GROWTH

    def _slot_copy(self, track: int, count: int) -> RowCopy:
        begin = HEADER_BYTES + int(self._next[track]) * SLOT_BYTES
        address = self.launch.address + (self._tracks[track] << self.launch.shift) + begin
        return RowCopy(address, count * SLOT_BYTES, count * SLOT_BYTES, 1)

    def _read_rings(self, copy: RunningCopy, headers: Headers, now_ns: int) -> None:
        """Read whole rings, and find what has changed in each since the last time."""
        half = (1 << self.launch.shift) // 2
        copied = copy.all_rows(list(self._block_copies(half, self._capacity * SLOT_BYTES)))
        rings: Slots = np.concatenate(copied).view(np.uint64)
        before = np.zeros_like(rings) if self._rings is None else self._rings
        soon = self._clocks.expected(headers, now_ns) + _AHEAD_CYCLES
        for track in self._readable(headers):
            running = headers["state"][track] != TrackState.EXITED
            self._read_ring(track, rings[track], before[track], int(soon[track]), running)
        self._rings = rings

    def _read_ring(self, track: int, ring: Slots, before: Slots, clock_now: int, running: bool) -> None:
        regions = self.launch.kernel.regions
        after = int(self._next[track])
        changed = np.roll(ring != before, -after)
        if changed[-1]:  # the last record read was overwritten, so there are others that nobody has read
            after = (newest_slot(ring, clock_now, regions) + 1) % len(ring)
            new = np.roll(ring, -after)
            self._history.restart(track)
            self._begins.pop(track, None)  # nobody knows whether they are still open
        else:
            last = np.flatnonzero(changed)
            new = np.roll(ring, -after)[: int(last[-1]) + 1 if len(last) else 0]
            kept = whole_records(new, regions) if running else len(new)
            for place in range(kept, len(new)):  # to be found changed again the next time
                ring[(after + place) % len(ring)] = before[(after + place) % len(ring)]
            new = new[:kept]
            after = (after + kept) % len(ring)
        self._history.add(track, new)
        self._next[track] = after

    def _end_now(self, headers: Headers, latest: Int64, now: Int64, now_ns: int) -> None:
        """Make the headers say that their running warps exited now, so that open regions last until now. Of a track
        that is full, the last record is the last thing known."""
        running = (headers["magic"] == TRACK_MAGIC) & (headers["state"] != TrackState.EXITED)
        start_clock, start_ns = (headers[name].astype(np.int64) for name in ("start_clock", "start_ns"))
        full = self._is_full()
        exit_clock = np.maximum(np.where(full, latest, now), start_clock)
        filled = start_ns + ((exit_clock - start_clock) / self._clocks.rate).astype(np.int64)
        exit_ns = np.maximum(np.where(full, filled, now_ns), start_ns)
        headers["exit_clock"][running], headers["exit_ns"][running] = exit_clock[running], exit_ns[running]
        headers["state"][running] = TrackState.EXITED
        headers["written"] = self._history.written

    def _described(self, rows: Rows, record: HangRecord, seconds: float) -> Launch:
        slots = self._with_begins().view(np.uint8).reshape(len(rows), -1)
        spent = {**self.launch.kernel.cost, "finalize_ns": seconds * 1e9}
        capacity = self._history.capacity
        described = describe_launch(self.launch, join_slots(rows, slots), capacity, self.records, spent, full="ring")
        sampled = {"blocks": len(self._blocks), "of": self.recorded, "lost": 0}
        some = {SAMPLED: sampled} if len(self._blocks) < self.recorded else {}
        return described.noting(extra={**(self.launch.place or {}), **some, HANG: record.to_json()})
