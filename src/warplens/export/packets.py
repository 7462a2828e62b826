"""Perfetto's trace packets and the ids of tracks.

Track ids are `track_id(kind, *numbers)` of what the track shows, so they are the same in every export of a trace and
other writers can refer to them: `("sm", rank, device, sm)`, `("warp", rank, device, launch, block, warp, lane)`,
`("overlap", id of the track beside it, lane)`, `("counter", id of the warp's track, name_id(region))`. Flow ids can be
made the same way.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.export import wire as w

Array = npt.NDArray[Any]

BOOTTIME, CLOCK = 6, 64
"""Perfetto's trace clock, and the id of each sequence's own incremental clock."""

HEAD_SEQUENCE = 1
"""The sequence of descriptors and launches, with absolute times."""

BEGIN, END, COUNTER = 1, 2, 4
"""Types of a track event."""
EXPLICIT = 1
"""Tracks are shown in the order of their ranks."""

_EXPLICIT_CHILDREN = 3
_STATE_CLEARED = 1


def track_id(kind: str, *numbers: Any) -> Array:
    """The 64-bit ids of tracks, from numbers or arrays; never 0, which is Perfetto's root."""
    state = np.full(np.broadcast_shapes(*(np.shape(value) for value in numbers)), name_id(kind), np.uint64)
    with np.errstate(over="ignore"):
        for value in numbers:
            state = _mix(state ^ np.asarray(value).astype(np.uint64))
    return np.where(state == 0, np.uint64(1), state)


def name_id(name: str) -> int:
    """A 64-bit hash of a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _mix(state: Array) -> Array:
    """The output function of splitmix64."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Array = state ^ (state >> np.uint64(31))
    return mixed


def packet(*fields: bytes) -> bytes:
    return w.data(1, b"".join(fields))


def annotation(name: str, value: str | int | float) -> bytes:
    """A debug annotation of a track event."""
    content = (
        w.data(6, value)
        if isinstance(value, str)
        else w.number(4, value)
        if isinstance(value, int)
        else w.real(5, value)
    )
    return w.data(4, w.data(10, name) + content)


def track_packet(uuid: int, *fields: bytes) -> bytes:
    """A TrackDescriptor."""
    return packet(w.number(10, HEAD_SEQUENCE), w.data(60, w.number(1, uuid) + b"".join(fields)))


def process_packet(uuid: int, pid: int, name: str, rank: int) -> bytes:
    """The descriptor of a process, shown at position `rank`."""
    process = w.number(1, pid) + w.data(6, name) + w.number(3, rank)
    order = w.number(11, _EXPLICIT_CHILDREN) + w.number(12, rank) + w.number(20, EXPLICIT)
    return track_packet(uuid, w.data(3, process), order)


def sequence_packet(sequence: int, uuid: int, interned: bytes = b"") -> bytes:
    """The first packet of a sequence: its track, its incremental clock and its names."""
    defaults = w.number(58, CLOCK) + w.data(11, w.number(11, uuid))
    return packet(
        w.number(10, sequence), _SEQUENCE_START, w.data(59, defaults), w.data(12, interned) if interned else b""
    )


def _clock(clock: int, *fields: bytes) -> bytes:
    return w.data(1, w.number(1, clock) + w.number(2, 0) + b"".join(fields))


_SEQUENCE_START = w.number(13, _STATE_CLEARED) + w.data(
    6, _clock(BOOTTIME) + _clock(CLOCK, w.number(3, 1)) + w.number(2, BOOTTIME)
)
