"""The device buffer of one launch: a launch header, followed by the tracks of `layout`.

The CUDA header advances only the low 32 bits of its write address, so no track may cross a 4 GiB boundary;
`BufferPlan.place` computes where in an allocation the buffer starts. Each track ends with spare slots that receive the
stores of a full track, so that recording needs no branch; they do not count towards the capacity. Direct marks need
`DIRECT_SPARE`, because an end stores the record of its begin too. Woven marks need `SPARE`, because they claim the
slots of a whole block of marks at once.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from warplens.errors import WarplensError
from warplens.record.capture import Dim3
from warplens.record.layout import HEADER_BYTES, LAYOUT_VERSION, MAX_SLOTS, MAX_WARPS, SLOT_BYTES, track_stride

BUFFER_MAGIC = 0x31424C57  # "WLB1"
BUFFER_BYTES = 128
WINDOW = 1 << 32
SPARE = 96
"""Slots past a track's capacity that woven marks may write or point to; see weave/stores/launch_tracks.py."""
DIRECT_SPARE = 2
"""The same for direct marks; see include/warplens_ptx.h."""
STORES = ("direct", "now", "late", "end", "mixed", "defer", "spread")
"""Values of `store` in the launch header: direct marks, or where the weaver placed the stores of woven marks."""
REFUSALS = ("", "tracks", "block", "room")
"""Values of `refused` in the launch header: why a warp with a wl::Kernel could not record. Direct marks only use
`tracks`."""
FULL_MODES = ("", "stop", "ring")
"""Values of `mode` in the launch header: the mode the kernel was compiled for. Empty if no warp wrote it."""

BUFFER = np.dtype(
    {
        "names": [
            "magic", "version", "capacity", "stride", "tracks", "per_block",
            "grid", "block", "names", "mode", "store", "refused", "names_size", "starts",
        ],
        "formats": ["<u4"] * 6 + ["(3,)<u4"] * 2 + ["<u8", "<u2", "<u2", "<u4", "<u4", "<u4"],
        "offsets": [0, 4, 16, 20, 24, 28, 32, 44, 64, 72, 74, 76, 80, 84],
        "itemsize": BUFFER_BYTES,
    }
)  # fmt: skip
"""The launch header. The host writes the first line and `names`, the address to which the device copies the module's
region names (0: do not copy). The device writes their size in bytes, how the kernel was compiled (`mode` and `store`,
as one word), and why a warp could not record. Where the host cannot know a launch's `grid` and `block`, the device
writes these too, and counts in `starts` the tracks that its first block started."""

DEFAULT_BYTES = 64 << 20
DEFAULT_SLOTS = (256, 65536)


@dataclass(frozen=True)
class BufferPlan:
    """The sizes of one launch's buffer."""

    capacity: int
    stride: int
    tracks: int
    per_block: int

    @property
    def size(self) -> int:
        """Bytes from the launch header to the end of the last track."""
        return BUFFER_BYTES + self.tracks * self.stride

    @property
    def allocation(self) -> int:
        """Bytes to allocate so that the buffer fits wherever `place` puts it."""
        return self.size + self.stride

    def place(self, address: int) -> int:
        """The start of the buffer in an allocation at `address`, chosen so that no track crosses a 4 GiB boundary."""
        first = address + BUFFER_BYTES
        to_boundary = -first % WINDOW
        if to_boundary >= self.tracks * self.stride:
            return address
        return address + to_boundary % self.stride

    def header(self, names: int = 0) -> bytes:
        """The launch header as the device expects it; `names` is the address for the region names."""
        head = np.zeros((), BUFFER)
        head["magic"], head["version"], head["names"] = BUFFER_MAGIC, LAYOUT_VERSION, names
        for name in ("capacity", "stride", "tracks", "per_block"):
            head[name] = getattr(self, name)
        return head.tobytes()


def plan(
    grid: Dim3,
    block: Dim3,
    *,
    records: int | None = None,
    full: str = "stop",
    every_thread: bool = False,
    spare: int = DIRECT_SPARE,
) -> BufferPlan:
    """Plan the buffer for one launch.

    `records` is the requested number per warp (or per thread); None selects a default that limits the memory used.
    `spare` must be SPARE if the kernel's marks may be woven.
    """
    threads = block[0] * block[1] * block[2]
    per_block = threads if every_thread else -(-threads // 32)
    tracks = grid[0] * grid[1] * grid[2] * per_block
    if min(*grid, *block) < 1 or per_block > MAX_WARPS * 32:
        raise WarplensError(
            f"grid {grid}, block {block}: each size must be at least 1 and a block at most 1024 threads"
        )
    if records is None:
        low, high = DEFAULT_SLOTS
        records = max(low, min(high, DEFAULT_BYTES // tracks // SLOT_BYTES // 16 * 16 - 16 - spare))
    if full == "ring":
        records = 1 << (records - 1).bit_length() if records else 0
    if records > MAX_SLOTS:
        raise WarplensError(f"records_per_warp={records}: at most {MAX_SLOTS} fit in one track")
    result = BufferPlan(records, track_stride(records, spare), tracks, per_block)
    if result.allocation > WINDOW:
        most = (WINDOW - BUFFER_BYTES) // (tracks + 1) // HEADER_BYTES * HEADER_BYTES
        most = (most - HEADER_BYTES) // SLOT_BYTES - spare
        advice = f"use at most records_per_warp={most}" if most > 0 else "launch a smaller grid"
        raise WarplensError(
            f"{tracks} warps with {records} records each need {result.allocation / 2**30:.1f} GiB, "
            f"the limit is 4; {advice}"
        )
    return result


def ring_slots(capacity: int) -> int:
    """Slots that a ring of this capacity uses: the largest power of two that fits."""
    return 1 << capacity.bit_length() - 1 if capacity else 0


def trimmed(buffer_plan: BufferPlan, capacity: int, written: int, full: str) -> BufferPlan:
    """The plan with tracks shortened to the fullest one, so that unused slots are not copied."""
    if full == "ring":
        written = 1 << max(0, written - 1).bit_length()
    capacity = min(capacity, written)
    return replace(buffer_plan, capacity=capacity, stride=track_stride(capacity))
