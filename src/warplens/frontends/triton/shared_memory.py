"""How much shared memory records may take: as much as does not lower occupancy, unless the user asks for more."""

from __future__ import annotations

import re
from dataclasses import replace

from warplens.driver.limits import SM_LIMITS, find_limits
from warplens.driver.theoretical_occupancy import blocks_per_sm, shared_for_blocks
from warplens.errors import UsageError
from warplens.record.layout import SLOT_BYTES
from warplens.weave.weaving import Selection, SharedBuffer

DEFAULT_BYTES = 8 << 10
"""The default: shared memory that records take is missing in L1."""
_UNKNOWN = replace(SM_LIMITS["8.6"], warps=64, blocks=32)
"""Limits assumed of an unknown compute capability: the least shared memory, and the most blocks to divide it among."""


def free_bytes(capability: int, shared: int, threads: int) -> int:
    """Return how many bytes a block may use besides its own `shared` without lowering the number of blocks per SM."""
    limits = find_limits(str(capability)) or _UNKNOWN
    blocks = blocks_per_sm(limits, threads, shared=shared)
    return max(0, shared_for_blocks(limits, max(blocks, 1)) - shared)


def shared_buffer(text: str, shared: int, select: Selection, wanted_bytes: int) -> SharedBuffer:
    """Place a kernel's records after its own `shared` bytes; `wanted_bytes` may be 0, for the default."""
    threads = re.search(r"\.reqntid\s+(\d+)", text)
    target = re.search(r"\.target\s+sm_(\d+)", text)
    if threads is None or target is None:
        raise UsageError("buffer='shared' needs a kernel with a fixed block size; use buffer='global'")
    capability, size = int(target[1]), int(threads[1])
    if wanted_bytes:
        available = min(wanted_bytes, shared_for_blocks(find_limits(target[1]) or _UNKNOWN, 1) - shared)
    else:
        available = min(DEFAULT_BYTES, free_bytes(capability, shared, size))
    tracks = select.tracks_per_block(-(-size // 32))
    offset = -(-shared // 16) * 16
    slots = (available - (offset - shared)) // SLOT_BYTES // tracks
    if slots < 32:
        problem = f"{available} bytes besides the kernel's own {shared} are free"
        remedy = "ask for more with bytes_per_block=, record fewer warps, or use buffer='global'"
        if wanted_bytes:
            problem = f"{wanted_bytes} bytes for {tracks} tracks were asked for"
            remedy = remedy.replace("ask for more", "ask for a different size")
        raise UsageError(f"buffer='shared': {problem}, and a track needs at least {32 * SLOT_BYTES}; {remedy}")
    return SharedBuffer(1 << slots.bit_length() - 1, offset)


def record_bytes(buffer: SharedBuffer, select: Selection, threads: int) -> int:
    """Return the bytes of shared memory that the records of a block of `threads` take."""
    return buffer.slots * SLOT_BYTES * select.tracks_per_block(-(-threads // 32))
