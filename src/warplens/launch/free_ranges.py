"""Which parts of a stretch of memory are free: arithmetic only, no device."""

from __future__ import annotations

from bisect import bisect_left, insort


class FreeRanges:
    """Free ranges [start, end) in ascending order; neighbours are merged."""

    def __init__(self, start: int, size: int) -> None:
        self.start, self.end = start, start + size
        self._free = [(start, start + size)]

    def __contains__(self, address: int) -> bool:
        return self.start <= address < self.end

    def take(self, size: int, alignment: int) -> int | None:
        """The start of the first free range that holds `size` aligned bytes, now taken; None where none does."""
        for index, (start, end) in enumerate(self._free):
            first = -(-start // alignment) * alignment
            if first + size <= end:
                left = [(start, first), (first + size, end)]
                self._free[index : index + 1] = [(a, b) for a, b in left if a < b]
                return first
        return None

    def give(self, start: int, size: int) -> None:
        """Free a range that `take` returned."""
        end = start + size
        index = bisect_left(self._free, (start, end))
        before = self._free[index - 1] if index else None
        after = self._free[index] if index < len(self._free) else None
        if (before and before[1] > start) or (after and after[0] < end) or not self.start <= start < end <= self.end:
            raise ValueError(f"[{start}, {end}) was not taken")
        if before and before[1] == start:
            self._free.remove(before)
            start = before[0]
        if after and after[0] == end:
            self._free.remove(after)
            end = after[1]
        insort(self._free, (start, end))
