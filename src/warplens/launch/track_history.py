"""The latest records of tracks, on the host: a ring of slots for each, which is filled while the kernel runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt

from warplens.record.layout import KIND_BITS, MAX_REGION, REGION_SHIFT, Kind, word0

Slots = npt.NDArray[np.uint64]
Int64 = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_HAVE_PAYLOAD = (Kind.VALUE, Kind.ANCHOR)


class TrackHistory:
    """`capacity` slots for each of `tracks` tracks. `slots` lie as a device's ring has them, so that the decoder reads
    them as such, with `written` in the track's header."""

    def __init__(self, tracks: int, capacity: int) -> None:
        self.capacity = capacity
        self.slots: Slots = np.zeros((tracks, capacity), np.uint64)
        self._total = np.zeros(tracks, np.int64)
        self.newest: Int64 = np.full(tracks, -1, np.int64)
        """The clock's low 32 bits in the newest record of each track; -1 where there is none."""
        self.added: Int64 = np.zeros(tracks, np.int64)
        """Slots of each track that were ever added."""

    def add(self, track: int, new: Slots) -> None:
        """Add slots behind the newest one."""
        if not len(new):
            return
        self.added[track] += len(new)
        self._total[track] += max(len(new) - self.capacity, 0)
        kept = new[-self.capacity :]
        at = (int(self._total[track]) + np.arange(len(kept))) % self.capacity
        self.slots[track, at] = kept
        self._total[track] += len(kept)
        self.newest[track] = int(new[-1]) >> 32

    def restart(self, track: int) -> None:
        """Forget the slots of a track: what follows does not continue them. It counts as a ring that has lost its
        oldest records."""
        self.slots[track] = 0
        self._total[track] += self.capacity

    @property
    def lost(self) -> Mask:
        """Tracks of which older slots are gone."""
        return np.asarray(self._total > self.capacity)

    def with_begins(self, track: int, begins: Sequence[tuple[int, int]], clock_at: Callable[[int, int], int]) -> Slots:
        """The slots of a track that has lost some, with the begins of regions, each its number and 64-bit clock, in
        place of the oldest. Begins that are still there are left out. `clock_at` completes the clock of a record: from
        its position among all slots, and its low bits."""
        ring: Slots = self.slots[track]
        total, capacity = int(self._total[track]), self.capacity
        order = (total + np.arange(capacity)) % capacity
        oldest = ring[order]
        plain = np.flatnonzero(_records(oldest) & ~np.isin(_kinds(oldest), _HAVE_PAYLOAD))
        gone = [one for one in begins if not (oldest[plain] == np.uint64(_slot(Kind.BEGIN, *one))).any()]
        head = 2 * (len(gone) + 1)
        if not gone or not (plain >= head).any():
            return ring
        following = int(plain[plain >= head][0])
        clock = clock_at(total - capacity + following, int(oldest[following]) >> 32)
        new = [slot for region, begin in gone for slot in (begin, _slot(Kind.ANCHOR, region, begin, Kind.BEGIN))]
        made: Slots = ring.copy()
        made[order[:following]] = 0
        # The clocks of the records that follow count on from the last one here.
        new += [clock, _slot(Kind.ANCHOR, 0, clock, Kind.ANCHOR)]
        made[order[following - head : following]] = np.array(new, np.uint64)
        return made

    def position(self) -> Int64:
        """How many slots of each track there were so far, with those that were passed over."""
        return np.array(self._total)

    @property
    def written(self) -> Int64:
        """What a header says of slots written; a number that never grows beyond its field stands for a large one."""
        total = self._total
        return np.where(total > self.capacity, 2 * self.capacity + total % self.capacity, total)


def whole_records(new: Slots, regions: Collection[int]) -> int:
    """How many of the newest slots of a running track are complete: a payload whose record is not there yet is left for
    the next time."""
    if len(new) and not is_record(new[-1:], regions)[0]:
        return len(new) - 1
    return len(new)


def is_record(slots: Slots, regions: Collection[int]) -> Mask:
    """Which slots look like a record of these regions."""
    kind = _kinds(slots)
    region = slots >> np.uint64(REGION_SHIFT) & np.uint64(MAX_REGION)
    known = np.isin(region, np.fromiter(regions, np.uint64, len(regions)))
    return np.asarray((kind != Kind.EMPTY) & (known | (kind == Kind.ANCHOR)))


def _records(slots: Slots) -> Mask:
    """Which slots are no payload, as far as a slot and the next one tell."""
    kind = _kinds(slots)
    return np.asarray((kind != Kind.EMPTY) & ~np.isin(np.roll(kind, -1), _HAVE_PAYLOAD))


def _kinds(slots: Slots) -> Slots:
    return np.asarray(slots & np.uint64((1 << KIND_BITS) - 1))


def _slot(kind: Kind, region: int, clock: int, tag: int = 0) -> int:
    return word0(kind, region, tag) | (clock & 0xFFFFFFFF) << 32


def newest_slot(ring: Slots, clock_now: int, regions: Collection[int]) -> int:
    """The place of the newest record in a ring all of whose records are recent: its clock is the closest to now."""
    candidates = is_record(ring, regions) & _records(ring)
    age = np.uint32(clock_now & 0xFFFFFFFF) - (ring >> np.uint64(32)).astype(np.uint32)
    return int(np.where(candidates, age.astype(np.int64), 1 << 32).argmin())
