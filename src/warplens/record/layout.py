"""The one definition of what device code writes.

Everything that writes or reads a track takes its numbers from here: the CUDA header's constants are generated from
this module (`python -m warplens.record.c_header`), the native decoder gets them as compiler definitions, and the
weaver formats them into PTX.

A launch's buffer is `tracks` tracks of `stride` bytes. A track is one 128-byte header and `capacity` 8-byte slots.
A record fills one slot: `word0 = kind | region << 3 | tag << 27`, `word1 = %clock` (low 32 bits). A value or an
anchor fills two: its 8-byte payload comes first and its record second, because a full ring is cut at an arbitrary
slot and only a backward walk from the newest record can then tell payloads from records. At the end of a track
that stops when full, such a pair is written whole or not at all (both slots still count as written), so that the
last slot kept is never a lone payload. Woven code stores a block of marks as one and may cut a pair there; what should
be that payload's clock is then hardly ever one of the track's time, and decoding leaves the slot out.

An anchor's payload is the globaltimer, or, if its tag names a kind of WIDE_KINDS, the mark's own 64-bit clock: it then
is a record of that kind, for tracks with gaps longer than the 32-bit clock. Tag ANCHOR gives the clock alone, ahead of
a record whose own payload or tag leaves no room for it.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

LAYOUT_VERSION = 1

SLOT_BYTES = 8
HEADER_BYTES = 128
"""One cache line, so that two warps never share one."""

KIND_BITS, REGION_BITS, TAG_BITS = 3, 24, 5
REGION_SHIFT = KIND_BITS
TAG_SHIFT = KIND_BITS + REGION_BITS

MAX_REGION = (1 << REGION_BITS) - 1
MAX_TAG = (1 << TAG_BITS) - 1
MAX_BLOCK = (1 << 31) - 1
MAX_WARPS = 64
MAX_SM = (1 << 15) - 1
MAX_SLOTS = 1 << 25
"""Slots of one track: 2^24 records, each of which may have a payload."""

TRACK_MAGIC = 0x31544C57  # "WLT1"


class Kind(IntEnum):
    """What a record says. EMPTY is zeroed memory: a slot nobody wrote."""

    EMPTY = 0
    BEGIN = 1
    END = 2
    INSTANT = 3
    VALUE = 4
    ANCHOR = 5
    ASYNC_BEGIN = 6
    ASYNC_END = 7


WIDE_KINDS = (Kind.BEGIN, Kind.END, Kind.INSTANT)
CLOCK_BITS = 62
"""A 64-bit clock that needs more bits is garbage."""


class TrackState(IntEnum):
    """How far the warp got: RUNNING stays when a trap or a hang kept it from its exit."""

    RUNNING = 0
    EXITED = 1


HEADER = np.dtype(
    {
        "names": [
            "magic", "block", "warp", "lane", "sm", "written", "state", "flush",
            "start_clock", "start_ns", "exit_clock", "exit_ns",
        ],
        "formats": ["<u4", "<u4", "<u2", "<u2", "<u4", "<u4", "<u4", "<u4", "<u8", "<u8", "<u8", "<u8"],
        "offsets": [0, 4, 8, 10, 12, 16, 20, 24, 32, 40, 48, 56],
        "itemsize": HEADER_BYTES,
    }
)  # fmt: skip
"""The track header. `written` counts slots, also those that did not fit; `flush` the cycles that copying a buffer in
shared memory to the track took after the exit."""

RECORD = np.dtype([("word0", "<u4"), ("clock", "<u4")])


class ValueType(IntEnum):
    """How a payload's 8 bytes read: the tag of a VALUE record."""

    I64 = 0
    U64 = 1
    F64 = 2


def word0(kind: Kind, region: int = 0, tag: int = 0) -> int:
    """The first word of a record; refuses what does not fit its field."""
    if not 0 <= region <= MAX_REGION:
        raise ValueError(f"region id {region} is outside 0..{MAX_REGION}")
    if not 0 <= tag <= MAX_TAG:
        raise ValueError(f"tag {tag} is outside 0..{MAX_TAG}")
    return int(kind) | region << REGION_SHIFT | tag << TAG_SHIFT


def split_word0(word: int) -> tuple[Kind, int, int]:
    """The kind, region id and tag of a first word."""
    return Kind(word & ((1 << KIND_BITS) - 1)), word >> REGION_SHIFT & MAX_REGION, word >> TAG_SHIFT


def track_stride(capacity: int, spare: int = 0) -> int:
    """Bytes of a track with `capacity` slots and `spare` ones behind them, padded to whole cache lines."""
    if not 0 <= capacity <= MAX_SLOTS:
        raise ValueError(f"a track of {capacity} slots is outside 0..{MAX_SLOTS}")
    return -(-(HEADER_BYTES + (capacity + spare) * SLOT_BYTES) // HEADER_BYTES) * HEADER_BYTES


def linear_block(index: tuple[int, int, int], grid: tuple[int, int, int]) -> int:
    """The linearised block of a 3-D grid: x fastest, as the device computes it."""
    return index[0] + grid[0] * (index[1] + grid[1] * index[2])
