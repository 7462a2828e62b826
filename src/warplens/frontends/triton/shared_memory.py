"""How much shared memory records may take: as much as leaves the kernel's occupancy alone, unless more is asked for."""

from __future__ import annotations

import re

from warplens.errors import UsageError
from warplens.record.layout import SLOT_BYTES
from warplens.weave.weaving import Selection, SharedBuffer

DEFAULT_BYTES = 8 << 10
"""Unless told otherwise: what is taken from shared memory is missing in L1."""
RESERVED = 1 << 10
"""What the system keeps of each block's shared memory."""
_KIB = {80: 164, 86: 100, 87: 164, 89: 100, 90: 228, 100: 228, 103: 228, 110: 228, 120: 100, 121: 100}
"""Shared memory per SM by compute capability; an unknown one is taken for the smallest."""
_THREADS = {86: 1536, 87: 1536, 89: 1536, 110: 1536, 120: 1536, 121: 1536}
_BLOCKS = 32


def free_bytes(capability: int, shared: int, threads: int) -> int:
    """Bytes a block may use beside its own `shared` without fewer blocks fitting an SM than could before."""
    per_sm = _KIB.get(capability, 100) << 10
    blocks = min(per_sm // (shared + RESERVED), _THREADS.get(capability, 2048) // max(threads, 1), _BLOCKS)
    return max(0, per_sm // max(blocks, 1) - RESERVED - shared)


def shared_buffer(text: str, shared: int, select: Selection, wish: int) -> SharedBuffer:
    """Where a kernel's records wait, after its own `shared` bytes; `wish` is the bytes asked for, 0 for a default."""
    threads = re.search(r"\.reqntid\s+(\d+)", text)
    target = re.search(r"\.target\s+sm_(\d+)", text)
    if threads is None or target is None:
        raise UsageError("buffer='shared' needs a kernel with a fixed block size; use buffer='global'")
    capability, size = int(target[1]), int(threads[1])
    room = min(wish, (_KIB.get(capability, 100) << 10) - RESERVED - shared) if wish else DEFAULT_BYTES
    room = room if wish else min(room, free_bytes(capability, shared, size))
    tracks = select.tracks_per_block(-(-size // 32))
    offset = -(-shared // 16) * 16
    slots = (room - (offset - shared)) // SLOT_BYTES // tracks
    if slots < 32:
        most = f"{room} bytes beside the kernel's own {shared} are free"
        ask = "ask for more with bytes_per_block=, record fewer warps, or use buffer='global'"
        if wish:
            most, ask = f"{wish} bytes for {tracks} tracks were asked for", ask.replace("ask for more", "ask for other")
        raise UsageError(f"buffer='shared': {most}, and a track needs at least {32 * SLOT_BYTES}; {ask}")
    return SharedBuffer(1 << slots.bit_length() - 1, offset)
