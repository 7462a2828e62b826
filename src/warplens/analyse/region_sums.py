"""The durations of a few groups of spans, gathered block by block of rows.

A trace of millions of spans is gone through in blocks that fit a processor's cache, so that no other array than the
durations themselves is as long as the trace. Blocks end where a track ends, as parents are rows of the same track.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.trace.arrays import run_starts

Int = npt.NDArray[Any]
Mask = npt.NDArray[np.bool_]
MOST_GROUPS = 64
"""Groups at most: each has a row in tables of the warps and SMs."""
_BLOCK = 1 << 17
_NARROW = (1 << 31) - 1


@dataclass(frozen=True)
class SpanColumns:
    """What is needed of each row: its group, whether it is a span that ended, and its durations and place."""

    key: Int
    measured: Mask
    cycles: Int
    ns: Int
    parent: Int
    warp: Int
    sm: Int


@dataclass
class Gathered:
    """Durations of one group, in the order of the rows, and what of them lies outside inner spans."""

    parts: list[Int] = field(default_factory=list)
    exclusive: int = 0

    def durations(self) -> Int:
        return np.concatenate(self.parts)

    def std(self, mean: float) -> float:
        """The standard deviation of the durations, without an array of their squares."""
        squares = sum(float(np.square(part - mean).sum()) for part in self.parts)
        return float(np.sqrt(squares / sum(map(len, self.parts))))


class RegionSums:
    """The durations of each group in cycles and ns, and the spread of its mean over warps and SMs."""

    def __init__(self, columns: SpanColumns, groups: int) -> None:
        self.cycles = [Gathered() for _ in range(groups)]
        self.ns = [Gathered() for _ in range(groups)]
        self._groups = groups
        self._by_warp = _Members(groups, columns.warp)
        self._by_sm = _Members(groups, columns.sm)
        for begin, end in _blocks(columns.warp, columns.sm):
            self._add(columns, begin, end)

    def spreads(self, group: int) -> tuple[float, float]:
        """(largest - smallest) / mean of the group's mean duration per warp, and per SM."""
        return self._by_warp.spread(group), self._by_sm.spread(group)

    def _add(self, columns: SpanColumns, begin: int, end: int) -> None:
        rows = slice(begin, end)
        key, measured, parent = columns.key[rows], columns.measured[rows], columns.parent[rows]
        whole = bool(measured.all())
        order = np.argsort(key.astype(np.uint8), kind="stable")
        if not whole:
            order = order[measured[order]]
        key = key[order]
        bounds = np.searchsorted(key, np.arange(self._groups + 1)).tolist()
        child = (parent >= begin) & measured if not whole else parent >= begin
        at = parent[child] - begin
        for durations, found in ((columns.cycles[rows], self.cycles), (columns.ns[rows], self.ns)):
            inner = np.bincount(at, weights=durations[child], minlength=end - begin)
            # Asynchronous children may outlive their parent.
            own = np.maximum(durations - inner, 0.0)[order]
            grouped = durations[order]
            grouped = grouped.astype(np.int32) if len(grouped) and grouped.max() <= _NARROW else grouped
            for number, gathered in enumerate(found):
                first, last = bounds[number], bounds[number + 1]
                if first < last:
                    gathered.parts.append(grouped[first:last])
                    gathered.exclusive += int(own[first:last].sum())
        self._add_members(columns, rows, order, key)

    def _add_members(self, columns: SpanColumns, rows: slice, order: Int, key: Int) -> None:
        """Add up by runs of rows with the same warp and SM first: a block has few of them."""
        warp, sm = columns.warp[rows], columns.sm[rows]
        starts = run_starts(warp.astype(np.int64) << 32 | sm)
        run = np.repeat(np.arange(len(starts)), np.diff(np.append(starts, len(warp))))
        cell = key * len(starts) + run[order]
        shape, size = (self._groups, len(starts)), self._groups * len(starts)
        count = np.bincount(cell, minlength=size).reshape(shape)
        total: Int = np.bincount(cell, weights=columns.cycles[rows][order], minlength=size).reshape(shape)
        self._by_warp.add(warp[starts], count, total)
        self._by_sm.add(sm[starts], count, total)


class _Members:
    """Counts and durations of each group by warp or by SM."""

    def __init__(self, groups: int, member: Int) -> None:
        many = int(member.max()) + 1 if len(member) else 0
        self._count, self._total = np.zeros((many, groups)), np.zeros((many, groups))

    def add(self, member: Int, count: Int, total: Int) -> None:
        np.add.at(self._count, member, count.T)
        np.add.at(self._total, member, total.T)

    def spread(self, group: int) -> float:
        present = self._count[:, group] > 0
        means = self._total[present, group] / self._count[present, group]
        middle = float(means.mean())
        return float((means.max() - means.min()) / middle) if middle else 0.0


def _blocks(warp: Int, sm: Int) -> Iterator[tuple[int, int]]:
    """Ranges of rows that begin where another warp or SM begins, which is where a track begins."""
    begin, rows = 0, len(warp)
    while begin < rows:
        end = _next_track(warp, sm, min(begin + _BLOCK, rows))
        yield begin, end
        begin = end


def _next_track(warp: Int, sm: Int, row: int) -> int:
    """The first row from this one on that begins a track."""
    while row < len(warp):
        near = slice(row - 1, min(row + _BLOCK, len(warp)))
        changes = np.flatnonzero((warp[near][1:] != warp[near][:-1]) | (sm[near][1:] != sm[near][:-1]))
        if len(changes):
            return row + int(changes[0])
        row = near.stop
    return len(warp)
