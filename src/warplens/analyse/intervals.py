"""Unions of time intervals, and how long several sets of intervals coincide.

An interval is two numbers on one long axis, on which places (an SM of a launch, a block) follow one another.
"""

from __future__ import annotations

import numpy as np

from warplens.analyse.lifetimes import Float, Int

TAG_BITS = 4
MAX_SETS = 1 << TAG_BITS


def union(starts: Int, ends: Int) -> tuple[Int, Int]:
    """Merge intervals. `starts[i]` and `ends[i]` need not belong to the same interval.

    With both sorted, the i-th start opens a new interval exactly when all i earlier ones have ended.
    """
    starts, ends = np.sort(starts), np.sort(ends)
    if not len(starts):
        return starts, ends
    opens = np.append(True, starts[1:] > ends[:-1])
    begin, end = starts[opens], ends[np.append(opens[1:], True)]
    real = end > begin
    return begin[real], end[real]


def length(begin: Int, end: Int) -> int:
    return int((end - begin).sum())


def concurrency(sets: list[tuple[Int, Int]]) -> Float:
    """Measure how long each combination of sets was active: entry `m` is for exactly the sets in bit mask `m`.

    Entry 0 is meaningless where there are several places, since it counts the time between them.
    """
    if len(sets) > MAX_SETS:
        raise ValueError(f"{len(sets)} sets; at most {MAX_SETS} are supported")
    tagged = [(np.concatenate(pair) << TAG_BITS) | bit for bit, pair in enumerate(sets)]
    edges = np.sort(np.concatenate(tagged)) if tagged else np.empty(0, np.int64)
    if not len(edges):
        return np.zeros(1 << len(sets))
    toggled = np.left_shift(1, edges & (MAX_SETS - 1))
    mask = np.bitwise_xor.accumulate(toggled)[:-1]
    lasted = np.diff(edges >> TAG_BITS)
    return np.bincount(mask, weights=lasted, minlength=1 << len(sets)).astype(np.float64)


def most_concurrent(starts: Int, ends: Int, place: Int, places: int) -> Int:
    """The largest number of concurrent intervals at each place."""
    if not len(starts):
        return np.zeros(places, np.int64)
    time = np.concatenate([starts, ends])
    step = np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)])
    where = np.concatenate([place, place])
    order = np.lexsort((step, time, where))
    level = np.cumsum(step[order])
    heads = np.searchsorted(where[order], np.arange(places))
    return np.asarray(np.maximum.reduceat(level, np.minimum(heads, len(level) - 1)))
