"""Unwrap the clocks of one track record by record, and find records whose clock is outside the track's lifetime.

One wrong 32-bit clock would otherwise move all later records of its track by 2^32 cycles. A damaged record is shown
nowhere, and the clocks after it continue from the latest good record.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.decode.track_records import TrackRecords
from warplens.decode.track_windows import Bool, Int64, TrackWindows
from warplens.record.layout import Kind

BACKWARD = 0xFFFF0000
"""A difference of two 32-bit clocks from here on is a small step back."""
WRAP = 1 << 32
DROPPED, IGNORED = 9, 10
"""Kinds of damaged records, beyond those of the layout: with a row that must be removed, and without one."""


@dataclass(frozen=True)
class TrackClocks:
    """The clock of each record of a track, whether it stepped back, whether it is damaged; and the track's anchors."""

    clock: Int64
    backward: Bool
    damaged: Bool
    anchor_clock: Int64
    anchor_ns: Int64


def track_clocks(records: TrackRecords, part: slice, windows: TrackWindows, track: int) -> TrackClocks:
    """Unwrap the records of one track, as native/decode.c does."""
    start, exit_clock = int(windows.start_clock[track]), int(windows.exit_clock[track])
    limit = int(windows.latest_clock[track])
    low_words = records.low[part].tolist()
    clock = _clock_of_first(low_words, start, exit_clock) if windows.from_exit[track] else start
    low = clock % WRAP
    count = len(low_words)
    clocks, backward, damaged = np.full(count, start, np.int64), np.zeros(count, bool), np.zeros(count, bool)
    anchors: list[tuple[int, int]] = []
    follows = False  # whether the clock is that of a record
    for i, word in enumerate(low_words):
        at = part.start + i
        exact = int(records.exact[at])
        delta = _step(low, word)
        now = clock + delta if exact < 0 else exact
        ns = -1
        is_anchor = records.kind[at] == Kind.ANCHOR
        if is_anchor:
            ns, wraps = anchor_time(records, at, now, windows, track)
            now += wraps * WRAP
        if start <= now <= limit:
            backward[i] = delta < 0 if exact < 0 else follows and exact < clock
            clocks[i] = clock = now
            low = word
            follows = True
        else:
            damaged[i] = True
            ns = -1
        if is_anchor:
            anchors.append((now if ns >= 0 else 0, ns))
    found = np.array(anchors, np.int64).reshape(-1, 2)
    return TrackClocks(clocks, backward, damaged, found[:, 0], found[:, 1])


def anchor_time(records: TrackRecords, i: int, clock: int, windows: TrackWindows, track: int) -> tuple[int, int]:
    """The globaltimer of an anchor, -1 if invalid, and the number of 32-bit wraps that it shows to be missing."""
    ns = int(records.payload[i].astype(np.int64)) if records.has_payload[i] else 0
    if ns <= 0 or ns < windows.start_ns[track] or windows.rate[track] <= 0:
        return -1, 0
    expected = float(ns - windows.start_ns[track]) * windows.rate[track]
    wraps = np.rint((expected - float(clock - windows.start_clock[track])) / 4294967296.0)
    return ns, int(wraps) if 0 < wraps < 1048576.0 else 0


def _clock_of_first(low_words: list[int], start: int, exit_clock: int) -> int:
    """The clock of the first surviving record of a ring, unwrapped back from its exit without damaged records."""
    clock, low = exit_clock, exit_clock % WRAP
    for word in reversed(low_words):
        before = clock - _step(word, low)
        if before >= start:
            clock, low = before, word
    return clock


def _step(low: int, high: int) -> int:
    delta = (high - low) % WRAP
    return delta - WRAP if delta >= BACKWARD else delta
