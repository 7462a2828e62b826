"""Tie each wait on an mbarrier to the arrival that completed its phase.

No record says when a phase completed: copies complete on their own, and an arrival does not know that it was the last.
But no correct program completes a phase before everyone who waits for the one before has seen it, because parities
would repeat. So the waits of one barrier, ordered by their ends, are runs of equal parity, and each run is one phase.
The first wait of a run ends as soon as the phase completes. Arrivals of the next phase are ordered behind a wait of
this one, so the last arrival before that end is the one that completed the phase.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.trace.barrier_rows import Int, Mask

WAKE_CYCLES = 192
"""If the last arrival of a phase with copies came longer before the first waiter went on, a copy completed it. On an
H200 a waiter went on 45 to 126 cycles after the arrival that released it."""
_NONE = -1


@dataclass(frozen=True)
class BarrierWaits:
    """Waits on barriers. `barrier` numbers them, `parity` is 0 or 1; `own` is the time of the warp's own last arrival
    for waits that name no parity. Times are cycles of one SM, or ns."""

    barrier: Int
    begin: Int
    end: Int
    parity: Int
    own: Int
    by_state: Mask


@dataclass(frozen=True)
class BarrierArrivals:
    """Arrivals at barriers, and issues of copies that complete on them."""

    barrier: Int
    time: Int
    is_copy: Mask


def releases(waits: BarrierWaits, arrivals: BarrierArrivals) -> Int:
    """The index of the arrival that released each wait, -1 where none was recorded."""
    found = np.full(len(waits.barrier), _NONE, np.int64)
    if not len(found) or not len(arrivals.barrier):
        return found
    order = np.lexsort((waits.end, waits.barrier))
    barrier, end = waits.barrier[order], waits.end[order]
    phase = _phases(waits, order)
    heads = np.flatnonzero(np.append(True, phase[1:] != phase[:-1]))
    by_time = np.lexsort((arrivals.time, arrivals.barrier))
    arrived_at, time, is_copy = arrivals.barrier[by_time], arrivals.time[by_time], arrivals.is_copy[by_time]

    low = int(min(time.min(), end.min()))
    width = int(max(time.max(), end.max())) - low + 2
    completed = barrier[heads] * width + end[heads] - low
    last = np.searchsorted(arrived_at * width + time - low, completed, side="right") - 1
    valid = last >= 0
    valid[valid] = arrived_at[last[valid]] == barrier[heads][valid]
    # An arrival that released the phase before cannot release this one as well.
    before = np.append(_NONE, np.where(valid, last, _NONE)[:-1])
    first_of_barrier = np.append(True, barrier[heads][1:] != barrier[heads][:-1])
    before[first_of_barrier] = _NONE
    before = _running_maximum(before, first_of_barrier)
    valid &= last > before

    copies = np.maximum.accumulate(np.where(is_copy, np.arange(len(is_copy)), _NONE))
    copy = np.where(valid, copies[last], _NONE)
    same = (copy > before) & (copy >= 0)
    same[same] = arrived_at[copy[same]] == barrier[heads][same]
    late = same & (end[heads] - time[np.maximum(last, 0)] > WAKE_CYCLES)
    release = np.where(valid, by_time[np.where(late, copy, last)], _NONE)
    found[order] = np.repeat(release, np.diff(np.append(heads, len(order))))
    return found


def _running_maximum(values: Int, resets: Mask) -> Int:
    """The largest value so far in each group; a group begins where `resets` is set."""
    group = np.cumsum(resets)
    span = int(values.max(initial=0)) + 2
    return np.asarray(np.maximum.accumulate(values + group * span) - group * span)


def _phases(waits: BarrierWaits, order: Int) -> Int:
    """A number for the phase of each wait in `order`, which is by barrier, then by end."""
    barrier, parity = waits.barrier[order], waits.parity[order]
    starts = np.ones(len(order), bool)
    starts[1:] = (barrier[1:] != barrier[:-1]) | (parity[1:] != parity[:-1])
    by_state = waits.by_state[order]
    if by_state.any():
        # The phase of such a wait is that of the warp's own arrival: a new one if that came after the last completed.
        own, end = waits.own[order].tolist(), waits.end[order].tolist()
        completed = 0
        for at in range(len(order)):
            if by_state[at]:
                same_barrier = at > 0 and barrier[at] == barrier[at - 1]
                starts[at] = not same_barrier or own[at] > completed
            if starts[at]:
                completed = end[at]
    return np.cumsum(starts)
