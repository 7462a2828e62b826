"""Sets of time on many places at once: unions of intervals, and which of several sets hold at the same time.

An interval is two numbers on one long axis; places (an SM of a launch, a block) follow one another on it.
"""

from __future__ import annotations

import numpy as np

from warplens.analyse.lifetimes import Float, Int

TAG_BITS = 4
MOST_SETS = 1 << TAG_BITS


def union(starts: Int, ends: Int) -> tuple[Int, Int]:
    """The merged intervals. `starts[i]` and `ends[i]` need not belong together, only balance as a whole.

    Sorted apart, the i-th start opens a new piece exactly when all i earlier starts have ended.
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
    """How long each combination of sets held: entry `m` is the time when exactly the sets of bit mask `m` did.

    Entry 0 counts only time between the first and last edge and mixes places; it means nothing across places.
    """
    if len(sets) > MOST_SETS:
        raise ValueError(f"{len(sets)} sets are more than {MOST_SETS}")
    tagged = [(np.concatenate(pair) << TAG_BITS) | bit for bit, pair in enumerate(sets)]
    edges = np.sort(np.concatenate(tagged)) if tagged else np.empty(0, np.int64)
    if not len(edges):
        return np.zeros(1 << len(sets))
    toggled = np.left_shift(1, edges & (MOST_SETS - 1))
    mask = np.bitwise_xor.accumulate(toggled)[:-1]
    lasted = np.diff(edges >> TAG_BITS)
    return np.bincount(mask, weights=lasted, minlength=1 << len(sets)).astype(np.float64)


def most_concurrent(starts: Int, ends: Int, place: Int, places: int) -> Int:
    """The most intervals of a place that hold at once."""
    if not len(starts):
        return np.zeros(places, np.int64)
    time = np.concatenate([starts, ends])
    step = np.concatenate([np.ones(len(starts), np.int64), -np.ones(len(ends), np.int64)])
    where = np.concatenate([place, place])
    order = np.lexsort((step, time, where))
    level = np.cumsum(step[order])
    heads = np.searchsorted(where[order], np.arange(places))
    return np.asarray(np.maximum.reduceat(level, np.minimum(heads, len(level) - 1)))
