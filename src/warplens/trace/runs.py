"""A column as runs of equal values: most columns of a trace are constant along a track of thousands of rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.trace.arrays import run_starts

Array = npt.NDArray[Any]
_AT_ONCE = 1 << 17
"""Rows that are compared together, so that what lies between stays in a processor's cache."""


@dataclass(frozen=True)
class Runs:
    """The first row of each run, its value, and the number of rows of the column."""

    starts: npt.NDArray[np.int64]
    values: Array
    rows: int

    @staticmethod
    def of(values: Array) -> Runs:
        """The runs of a whole column."""
        return Runs.joined(values[first : first + _AT_ONCE] for first in range(0, max(len(values), 1), _AT_ONCE))

    @staticmethod
    def joined(parts: Iterable[Array]) -> Runs:
        """The runs of a column that comes part by part."""
        starts: list[Array] = []
        values: list[Array] = []
        rows = 0
        for part in parts:
            heads = run_starts(part)
            if rows and len(heads) and len(values[-1]) and part[0] == values[-1][-1]:
                heads = heads[1:]
            if len(heads) or not values:
                starts.append(heads + rows)
                values.append(part[heads])
            rows += len(part)
        if not values:  # a file without rows may have no part at all
            return Runs(np.zeros(0, np.int64), np.zeros(0, np.int64), 0)
        return Runs(np.concatenate(starts).astype(np.int64), np.concatenate(values), rows)

    @property
    def counts(self) -> npt.NDArray[np.int64]:
        return np.diff(self.starts, append=self.rows)

    def at(self, rows: Array) -> Array:
        return np.asarray(self.values[np.searchsorted(self.starts, rows, side="right") - 1])

    def whole(self) -> Array:
        """The column itself."""
        return np.repeat(self.values, self.counts)

    def blocks(self, first: int, last: int, rows: int) -> Iterator[tuple[int, int]]:
        """Ranges of about this many rows that begin where a run begins, from one such row up to another."""
        while first < last:
            at = int(np.searchsorted(self.starts, first + rows, side="right")) - 1
            end = int(self.starts[at])
            if end <= first:
                end = int(self.starts[at + 1]) if at + 1 < len(self.starts) else self.rows
            end = last if first + rows >= last else min(end, last)
            yield first, end
            first = end
