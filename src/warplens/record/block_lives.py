"""When and where each block of a launch lived, as a short text for a launch's `extra`.

It stays with a launch of which only some blocks were kept, so that waves, tails and occupancy are those of all blocks.
Times are nanoseconds of the device's globaltimer, from the launch's first start.
"""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

BYTES_PER_BLOCK = 16
"""More than one block takes in the text, for estimates."""
_LEVEL = 6
_LARGEST = 1 << 62

Int = npt.NDArray[np.int64]


@dataclass(frozen=True)
class BlockLives:
    """One entry per block, in the order of their numbers."""

    number: Int
    sm: Int
    begin: Int
    end: Int

    def __len__(self) -> int:
        return len(self.number)


def pack_lives(lives: BlockLives) -> str:
    """Each column as planes of its bytes: the high ones are nearly constant, and deflate makes them vanish."""
    columns = [np.diff(lives.number, prepend=0), lives.sm, np.diff(lives.begin, prepend=0), lives.end - lives.begin]
    planes = [_zigzag(column).view(np.uint8).reshape(-1, 8).T for column in columns]
    return deflated(np.concatenate(planes))


def deflated(planes: npt.NDArray[np.uint8]) -> str:
    """The planes of all columns as a text."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(planes).data, _LEVEL)).decode("ascii")


def unpack_lives(text: str, blocks: int) -> BlockLives:
    """The inverse of `pack_lives`; raises ValueError where the text does not hold the lives of so many blocks."""
    size = blocks * 4 * 8
    try:
        packed = zlib.decompressobj().decompress(base64.b64decode(text), size + 1)
    except (ValueError, zlib.error) as error:
        raise ValueError(f"malformed ({error})") from None
    if len(packed) != size:
        raise ValueError(f"does not hold {blocks:,} blocks")
    planes = np.frombuffer(packed, np.uint8).reshape(4, 8, -1)
    coded = [np.ascontiguousarray(plane.T).view(np.uint64).reshape(-1) for plane in planes]
    number, sm, begin, lasted = (((one >> 1).astype(np.int64) ^ -(one & 1).astype(np.int64)) for one in coded)
    most = _LARGEST // max(blocks, 1)
    if any((one < -most).any() or (one > most).any() for one in (number, sm, begin, lasted)):
        raise ValueError("holds times that no launch takes")
    if (number[:1] < 0).any() or (number[1:] <= 0).any() or (sm < 0).any() or (lasted < 0).any():
        raise ValueError("holds blocks out of order, or with a negative time")
    starts = np.cumsum(begin)
    return BlockLives(np.cumsum(number), sm, starts, starts + lasted)


def _zigzag(values: Int) -> npt.NDArray[np.uint64]:
    signed = np.ascontiguousarray(values, np.int64)
    return np.ascontiguousarray(((signed << 1) ^ (signed >> 63)).view(np.uint64))
