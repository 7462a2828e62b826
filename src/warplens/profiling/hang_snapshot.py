"""The trace of a profile whose kernel does not end: what is on the host, and what can be copied while it runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from warplens.decode import decode
from warplens.launch.block_sampler import sample_launches
from warplens.launch.running_launch import copy_running
from warplens.launch.woven import WovenLaunch
from warplens.record.capture import HANG, HOST_NS, Capture, Launch
from warplens.record.layout import HEADER, TRACK_MAGIC
from warplens.record.running_tracks import HangRecord
from warplens.session import Session
from warplens.trace.model import Trace

_SAME_CLOCK_NS = 3600 * 10**9
"""A globaltimer that is closer than this to the host's clock counts Unix time, as on current GPUs."""
_COMPARED = 64
"""Launches that are compared with the host's clock."""


def hanging_launches(
    session: Session, hung: Sequence[tuple[WovenLaunch, float]], cause: str, host_ns: int
) -> list[Launch]:
    """The launches so far, in order; those of `hung`, each with the seconds it was waited for, as they are now.
    Empty if all of them have ended in the meantime."""
    copied: dict[int, Launch] = {}
    for one, waited in hung:
        copy = copy_running(one)
        if copy is not None:
            record = replace(HangRecord.of(copy.extra) or HangRecord(), waited_s=round(waited, 3), cause=cause)
            copied[id(one)] = copy.noting(extra={HANG: record.to_json()})
    if not copied:
        return []
    launches = session.launches_so_far(copied)
    now = host_ns + clock_offset(launches)
    return [_at(launch, now) for launch in launches]


def trace_of(session: Session, launches: Sequence[Launch], rank: int, most_bytes: int | None = None) -> Trace:
    """The trace of launches; with `most_bytes`, of some of their blocks."""
    kept = sample_launches(list(launches), most_bytes)
    trace = decode(Capture(kept, device=session.device, rank=rank))
    notes = {kernel: tuple(said) for kernel, said in session.notes.items()}
    trace.meta = replace(trace.meta, notes=notes)
    return trace


def _at(launch: Launch, now_ns: int) -> Launch:
    record = HangRecord.of(launch.extra)
    return launch if record is None else launch.noting(extra={HANG: replace(record, now_ns=now_ns).to_json()})


def clock_offset(launches: Sequence[Launch]) -> int:
    """What to add to the host's time to get that of the globaltimer. No kernel starts before it was launched, so the
    quickest start is the closest bound."""
    bounds = []
    for launch in launches[-_COMPARED:]:
        headers = np.ndarray(launch.tracks, HEADER, np.ascontiguousarray(launch.raw), strides=(launch.stride,))
        started = headers["start_ns"][headers["magic"] == TRACK_MAGIC]
        if len(started):
            bounds.append(int(started.min()) - int(launch.extra[HOST_NS]))
    closest = min(bounds, default=0)
    return 0 if abs(closest) < _SAME_CLOCK_NS else closest
