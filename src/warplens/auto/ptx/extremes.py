"""Whether the values that belong to a range of places are inside limits, found without a look at each of them."""

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

    def within(self, start: int, stop: int, low: int, high: int) -> bool:
        """Whether all values of the places in [start, stop) are in [low, high)."""
        first, last = bisect.bisect_left(self._places, start), bisect.bisect_left(self._places, stop)
        begin, end = -(-first // _CHUNK), last // _CHUNK
        if begin < end:
            level = (end - begin).bit_length() - 1
            smallest, largest, other = self._smallest[level], self._largest[level], end - (1 << level)
            if min(smallest[begin], smallest[other]) < low or max(largest[begin], largest[other]) >= high:
                return False
            rest = self._values[first : begin * _CHUNK] + self._values[end * _CHUNK : last]
        else:
            rest = self._values[first:last]
        return not rest or (min(rest) >= low and max(rest) < high)


def _table(values: list[int], choose: Callable[..., int]) -> list[list[int]]:
    """Row k holds, for each chunk, the chosen one of the values of 2**k chunks from there on."""
    rows = [[choose(values[at : at + _CHUNK]) for at in range(0, len(values), _CHUNK)]]
    width = 1
    while 2 * width <= len(rows[0]):
        rows.append(list(map(choose, rows[-1], rows[-1][width:])))
        width *= 2
    return rows
