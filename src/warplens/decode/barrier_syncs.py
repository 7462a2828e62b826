"""Tie each warp that left a named or cluster barrier to the warp that came last.

All participants arrive before the first one leaves, and none arrives twice in a phase. So the arrivals at a barrier,
ordered by time, fall into phases: a phase ends with the number of warps that the barrier counts, before a warp comes
again, and before an arrival that is later than somebody's leaving.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.trace.barrier_rows import Int

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Participants:
    """Arrivals at barriers: who came when, when it left (or never waited: -1), and how many warps make a phase."""

    barrier: Int
    warp: Int
    arrived: Int
    left: Int
    expected: Int


def last_arrivals(participants: Participants, tolerance: int = 0) -> Int:
    """For each participant, the index of the last arrival of its phase."""
    last = np.full(len(participants.barrier), -1, np.int64)
    order = np.lexsort((participants.arrived, participants.barrier)).tolist()
    barrier, warp = participants.barrier.tolist(), participants.warp.tolist()
    arrived, expected = participants.arrived.tolist(), participants.expected.tolist()
    left = np.where(participants.left < 0, _NEVER, participants.left).tolist()
    phase: list[int] = []
    seen: set[int] = set()
    leaves = _NEVER
    for at in order:
        ends = phase and (
            barrier[at] != barrier[phase[0]]
            or len(phase) >= expected[phase[0]] > 0
            or warp[at] in seen
            or arrived[at] > leaves + tolerance
        )
        if ends:
            last[phase] = phase[-1]
            phase, seen, leaves = [], set(), _NEVER
        phase.append(at)
        seen.add(warp[at])
        leaves = min(leaves, left[at])
    if phase:
        last[phase] = phase[-1]
    return last
