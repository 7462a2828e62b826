"""Copies what a launch has recorded so far, while its kernel runs."""

from __future__ import annotations

import time

import numpy as np
import numpy.typing as npt

from warplens.launch.landing import describe_launch, join_slots
from warplens.launch.running_copy import RunningCopy
from warplens.launch.side_copy import RowCopy, Rows
from warplens.launch.woven import WovenLaunch
from warplens.record.capture import HANG, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, TrackState
from warplens.record.running_tracks import HangRecord, pack_tracks
from warplens.weave.fixed_slots import STORE as FIXED
from warplens.weave.weaving import capacity_of

FIRST_SLOTS, GROWTH = 64, 8
"""Slots of each track that are copied first; if a track has more, so many times as many are copied next."""


def copy_running(launch: WovenLaunch) -> Launch | None:
    """The launch with what it has recorded so far; None where it ended in the meantime, and its memory may hold the
    records of another one, or where there are no records or no way to copy them."""
    copy = launch.engine.running_copy
    if copy is None or launch.kernel.aggregate:  # statistics do not say where a warp is
        return None
    start = time.perf_counter()
    with copy.inside():
        if not launch.in_flight:
            return None
        rows = _rows(copy, launch, 0, HEADER_BYTES)
        headers = rows.view(HEADER).reshape(-1)
        slots = _slots(copy, launch, headers)
        if not launch.in_flight:
            return None
    spent = {**launch.kernel.cost, "finalize_ns": (time.perf_counter() - start) * 1e9}
    record = record_of_running(headers)
    count = slots.shape[1] // SLOT_BYTES
    described = describe_launch(launch, join_slots(rows, slots), count, count, spent)
    return described.noting(extra={**(launch.place or {}), HANG: record.to_json()})


def record_of_running(headers: npt.NDArray[np.void]) -> HangRecord:
    """Which of these tracks are running now."""
    begun = headers["magic"] == TRACK_MAGIC
    running = headers[begun & (headers["state"] == TrackState.RUNNING)]
    return HangRecord(
        running=pack_tracks(zip(running["block"].tolist(), running["warp"].tolist(), strict=True)),
        ended=int((begun & (headers["state"] != TrackState.RUNNING)).sum()),
        unstarted=int((~begun).sum()),
    )


def _slots(copy: RunningCopy, launch: WovenLaunch, headers: npt.NDArray[np.void]) -> Rows:
    """The slots of all tracks, as many as the longest of them has written."""
    kernel = launch.kernel
    capacity = capacity_of(launch.shift, kernel.full, kernel.slack)
    first = (1 << launch.shift) // 2 if kernel.full == "ring" else HEADER_BYTES
    exited = headers["state"] != 0
    known = int(headers["written"][exited].max(initial=0))
    # Marks with fixed slots leave empty ones between them.
    count = capacity if kernel.store == FIXED else min(max(FIRST_SLOTS, known), capacity)
    while True:
        slots = _rows(copy, launch, first, count * SLOT_BYTES)
        # A value of zero leaves one empty slot, never two in a row.
        if count == capacity or not slots[~exited, -2 * SLOT_BYTES :].any():
            return slots
        count = min(count * GROWTH, capacity)


def _rows(copy: RunningCopy, launch: WovenLaunch, begin: int, width: int) -> Rows:
    return copy.rows(RowCopy(launch.address + begin, 1 << launch.shift, width, launch.tracks))
