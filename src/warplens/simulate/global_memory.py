"""Simulated global memory: one flat arena with byte-exact bounds checks, as in compute-sanitizer."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
import numpy.typing as npt

from warplens.errors import WarplensError
from warplens.simulate.numeric import UNSIGNED, Array

GLOBAL_BASE = 0x7_0000_0000
SHARED_WINDOW = 1 << 48
LOCAL_WINDOW = 1 << 49
_GUARD = 256


class GlobalMemory:
    """Device memory: `alloc` returns an address, `write` and `read` copy numpy arrays from and to the host."""

    def __init__(self, capacity: int = 64 << 20) -> None:
        self._bytes = np.zeros(-(-capacity // 16) * 16, np.uint8)
        self._used = _GUARD
        self._starts: list[int] = []
        self._ends: list[int] = []
        self._views: dict[int, Array] = {}

    def alloc(self, what: int | npt.ArrayLike, align: int = 256) -> int:
        """Allocate `what` zeroed bytes, or a copy of the array `what`, with a guard band on both sides."""
        data: Array = None if isinstance(what, int | np.integer) else np.ascontiguousarray(what)
        size = int(what) if isinstance(what, int | np.integer) else int(data.nbytes)
        start = -(-self._used // align) * align
        self._used = start + size + _GUARD
        if self._used > len(self._bytes):
            grown = np.zeros(max(2 * len(self._bytes), -(-self._used // 16) * 16), np.uint8)
            grown[: len(self._bytes)] = self._bytes
            self._bytes = grown
            self._views.clear()
        self._starts.append(GLOBAL_BASE + start)
        self._ends.append(GLOBAL_BASE + start + size)
        if data is not None:
            self.write(GLOBAL_BASE + start, data)
        return GLOBAL_BASE + start

    def write(self, address: int, data: npt.ArrayLike) -> None:
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self._host_check(address, len(raw))
        self._bytes[address - GLOBAL_BASE : address - GLOBAL_BASE + len(raw)] = raw

    def read(self, address: int, dtype: npt.DTypeLike, count: int) -> Array:
        """A copy of `count` elements at `address`."""
        size = np.dtype(dtype).itemsize * count
        self._host_check(address, size)
        return self._bytes[address - GLOBAL_BASE : address - GLOBAL_BASE + size].copy().view(dtype)

    def words(self, width: int) -> Array:
        """The arena as words of `width` bytes, indexed by (address - GLOBAL_BASE) / width."""
        if width not in self._views:
            self._views[width] = self._bytes.view(UNSIGNED[width])
        return self._views[width]

    def holds(self, low: int, end: int) -> bool:
        """Whether the bytes [low, end) are in one allocation."""
        index = bisect_right(self._starts, low) - 1
        return index >= 0 and end <= self._ends[index]

    def outside(self, addresses: Array, width: int) -> Array:
        """Which of `addresses` (uint64) are not followed by `width` bytes inside one allocation."""
        if not self._starts:
            return np.ones(len(addresses), bool)
        starts, ends = np.array(self._starts, np.uint64), np.array(self._ends, np.uint64)
        index = np.searchsorted(starts, addresses, side="right") - 1
        inside = (index >= 0) & (addresses + np.uint64(width) <= ends[np.maximum(index, 0)])
        return ~inside

    def describe(self, address: int) -> str:
        """Describe `address` relative to the nearest allocation below it."""
        index = bisect_right(self._starts, address) - 1
        if index < 0:
            return "below every allocation"
        start, end = self._starts[index], self._ends[index]
        return f"{address - start} bytes into an allocation of {end - start} bytes at {start:#x}"

    def _host_check(self, address: int, size: int) -> None:
        if size and not self.holds(address, address + size):
            raise WarplensError(f"simulated memory: {size} bytes at {address:#x} are {self.describe(address)}")
