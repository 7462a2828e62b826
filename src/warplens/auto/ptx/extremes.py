"""The smallest and largest of the values that belong to a range of places, found without a look at each of them."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable

_CHUNK = 32
"""Values that are looked at one by one at either end of a range; those between are known by chunks."""


class Extremes:
    """Values at places; several values may share a place."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(pairs)
        self._places = [place for place, _ in ordered]
        self._values = [value for _, value in ordered]
        self._smallest, self._largest = _table(self._values, min), _table(self._values, max)

    def smallest(self, start: int, stop: int, default: int) -> int:
        """The smallest value of the places in [start, stop); `default` if it has none."""
        return min(self._candidates(self._smallest, start, stop), default=default)

    def largest(self, start: int, stop: int, default: int) -> int:
        """The largest value of the places in [start, stop); `default` if it has none."""
        return max(self._candidates(self._largest, start, stop), default=default)

    def _candidates(self, table: list[list[int]], start: int, stop: int) -> list[int]:
        first, last = bisect.bisect_left(self._places, start), bisect.bisect_left(self._places, stop)
        begin, end = -(-first // _CHUNK), last // _CHUNK
        if begin >= end:
            return self._values[first:last]
        level = (end - begin).bit_length() - 1
        chunks = [table[level][begin], table[level][end - (1 << level)]]
        return chunks + self._values[first : begin * _CHUNK] + self._values[end * _CHUNK : last]


def _table(values: list[int], choose: Callable[..., int]) -> list[list[int]]:
    """Row k holds, for each chunk, the chosen one of the values of 2**k chunks from there on."""
    rows = [[choose(values[at : at + _CHUNK]) for at in range(0, len(values), _CHUNK)]]
    width = 1
    while 2 * width <= len(rows[0]):
        rows.append(list(map(choose, rows[-1], rows[-1][width:])))
        width *= 2
    return rows
