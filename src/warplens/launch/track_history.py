"""The latest records of tracks, on the host: a ring of slots for each, which is filled while the kernel runs."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from warplens.record.layout import KIND_BITS, MAX_REGION, REGION_SHIFT, Kind

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
    kind = slots & np.uint64((1 << KIND_BITS) - 1)
    region = slots >> np.uint64(REGION_SHIFT) & np.uint64(MAX_REGION)
    known = np.isin(region, np.fromiter(regions, np.uint64, len(regions)))
    return np.asarray((kind != Kind.EMPTY) & (known | (kind == Kind.ANCHOR)))


def newest_slot(ring: Slots, clock_now: int, regions: Collection[int]) -> int:
    """The place of the newest record in a ring all of whose records are recent: its clock is the closest to now."""
    kind = ring & np.uint64((1 << KIND_BITS) - 1)
    followed_by = np.roll(kind, -1)
    candidates = is_record(ring, regions) & ~np.isin(followed_by, _HAVE_PAYLOAD)
    age = np.uint32(clock_now & 0xFFFFFFFF) - (ring >> np.uint64(32)).astype(np.uint32)
    return int(np.where(candidates, age.astype(np.int64), 1 << 32).argmin())
