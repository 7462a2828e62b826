"""The single definition of the bytes that device code writes.

Everything that writes or reads a track takes its constants from here: those of the CUDA header are generated from
this module (`python -m warplens.record.c_header`), the native decoder gets them as compiler definitions, and the
weaver formats them into PTX.

A launch's buffer is `tracks` tracks of `stride` bytes. A track is one 128-byte header and `capacity` 8-byte slots.
A record fills one slot: `word0 = kind | region << 3 | tag << 27`, `word1 = %clock` (low 32 bits). A value or an
anchor fills two slots, its 8-byte payload first and its record second, because a full ring starts at an arbitrary slot
and only a backward walk from the newest record can then distinguish payloads from records. At the end of a track that
stops when full, such a pair is written completely or not at all (both slots still count as written), so that the last
slot is never a lone payload. Woven code stores a block of marks at once and may cut a pair there. The decoder drops
that slot, because the upper half of a payload is almost never a clock within the track's lifetime.

The payload of an anchor is the globaltimer. If the anchor's tag is one of WIDE_KINDS, the payload is the mark's 64-bit
clock instead, and the pair is a record of that kind, for tracks with gaps longer than the 32-bit clock can count. Tag
ANCHOR means that the payload is the 64-bit clock of the next record, whose own payload or tag leaves no space for it.

Adding a record kind: all eight 3-bit codes are in use, and widening the field would take bits from the region id.
Extend an existing kind through its 5-bit tag instead. INSTANT, BEGIN and END do not use their tags: give the new kind a
tag of INSTANT if it has no payload. If it has one, give it an unused tag of ANCHOR (0 is the globaltimer), as wide
records do; the backward walk then already finds its payload. Define the tag here, increase LAYOUT_VERSION, and handle
it in both decoders (native/decode.c, decode/numpy_decoder.py), in warplens_chrome.h and in the writers.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

LAYOUT_VERSION = 1

SLOT_BYTES = 8
HEADER_BYTES = 128
"""One cache line, so that two warps never write to the same one."""

KIND_BITS, REGION_BITS, TAG_BITS = 3, 24, 5
REGION_SHIFT = KIND_BITS
TAG_SHIFT = KIND_BITS + REGION_BITS

MAX_REGION = (1 << REGION_BITS) - 1
MAX_TAG = (1 << TAG_BITS) - 1
MAX_BLOCK = (1 << 31) - 1
MAX_WARPS = 64
MAX_SM = (1 << 15) - 1
MAX_SLOTS = 1 << 25
"""Slots of one track: enough for 2^24 records with a payload each."""
LIFETIME_BITS = 53
"""A warp lives for fewer cycles and fewer ns than this many bits hold: 104 days in ns, and exact as a double."""
SANE = 1 << 62
"""Clocks and times beyond this are invalid, and adding to them would overflow."""
SLOWEST_NS, PAUSE_NS = 1000, 10**9
"""The longest plausible cycle, and the longest pause of the whole GPU; times at a slower rate would overflow."""

TRACK_MAGIC = 0x31544C57  # "WLT1"


class Kind(IntEnum):
    """The kind of a record. EMPTY is zeroed memory: a slot that was never written."""

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
"""A 64-bit clock that needs more bits is invalid."""


class TrackState(IntEnum):
    """Whether the warp reached its exit. A trap or a hang leaves RUNNING."""

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
"""The track header. `written` counts slots, including those that did not fit. `flush` is the number of cycles it took
after the exit to copy records from shared memory to the track."""
HEADER_AT = {name: int(HEADER.fields[name][1]) for name in HEADER.names}  # type: ignore[index, union-attr]
"""The offset of each field of the header."""

RECORD = np.dtype([("word0", "<u4"), ("clock", "<u4")])


class ValueType(IntEnum):
    """The type of a payload's 8 bytes: the tag of a VALUE record."""

    I64 = 0
    U64 = 1
    F64 = 2
    BARRIER = 3
    """What a warp did with a barrier, packed as in record/barrier_words.py; older decoders read it as an I64."""


def word0(kind: Kind, region: int = 0, tag: int = 0) -> int:
    """The first word of a record. Raises ValueError if the region or the tag does not fit."""
    if not 0 <= region <= MAX_REGION:
        raise ValueError(f"region id {region} is outside 0..{MAX_REGION}")
    if not 0 <= tag <= MAX_TAG:
        raise ValueError(f"tag {tag} is outside 0..{MAX_TAG}")
    return int(kind) | region << REGION_SHIFT | tag << TAG_SHIFT


def split_word0(word: int) -> tuple[Kind, int, int]:
    """The kind, region id and tag of a first word."""
    return Kind(word & ((1 << KIND_BITS) - 1)), word >> REGION_SHIFT & MAX_REGION, word >> TAG_SHIFT


def track_stride(capacity: int, spare: int = 0) -> int:
    """Bytes of a track with `capacity` slots followed by `spare` ones, padded to whole cache lines."""
    if not 0 <= capacity <= MAX_SLOTS:
        raise ValueError(f"a track of {capacity} slots is outside 0..{MAX_SLOTS}")
    return -(-(HEADER_BYTES + (capacity + spare) * SLOT_BYTES) // HEADER_BYTES) * HEADER_BYTES


def linear_block(index: tuple[int, int, int], grid: tuple[int, int, int]) -> int:
    """The linear index of a block in a 3-D grid, with x varying fastest, as the device computes it."""
    return index[0] + grid[0] * (index[1] + grid[1] * index[2])
