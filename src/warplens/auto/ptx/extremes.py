"""The smallest and largest of the values that belong to a range of places, in constant time per question."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable


class Extremes:
    """Values at places; several values may share a place."""

    def __init__(self, pairs: Iterable[tuple[int, int]]) -> None:
        ordered = sorted(pairs)
        self._places = [place for place, _ in ordered]
        values = [value for _, value in ordered]
        self._smallest, self._largest = _table(values, min), _table(values, max)

    def smallest(self, start: int, stop: int, default: int) -> int:
        """The smallest value of the places in [start, stop); `default` if it has none."""
        return self._find(self._smallest, min, start, stop, default)

    def largest(self, start: int, stop: int, default: int) -> int:
        """The largest value of the places in [start, stop); `default` if it has none."""
        return self._find(self._largest, max, start, stop, default)

    def _find(
        self, table: list[list[int]], choose: Callable[[int, int], int], start: int, stop: int, default: int
    ) -> int:
        first, last = bisect.bisect_left(self._places, start), bisect.bisect_left(self._places, stop)
        if first >= last:
            return default
        level = (last - first).bit_length() - 1
        row = table[level]
        return choose(row[first], row[last - (1 << level)])


def _table(values: list[int], choose: Callable[[int, int], int]) -> list[list[int]]:
    """Row k holds, for each index, the chosen one of the 2**k values from there on."""
    rows, width = [values], 1
    while 2 * width <= len(values):
        above = rows[-1]
        rows.append([choose(above[at], above[at + width]) for at in range(len(above) - width)])
        width *= 2
    return rows
