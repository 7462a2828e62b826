"""Proton's sessions. Several may run at once; those that record inside kernels share one profile."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any

from warplens.compat.proton.launch_log import LaunchLog
from warplens.compat.proton.mode import InstrumentationMode
from warplens.compat.proton.scopes import forward_to
from warplens.errors import WarplensError
from warplens.frontends.triton.requirement import triton_version
from warplens.profiling.profile import Profile
from warplens.trace.model import Trace

log = LaunchLog()


@dataclass
class Segment:
    """A stretch in which the same sessions were recording: one profile, and what became of it."""

    profile: Profile
    sessions: frozenset[int]
    running: bool = True
    trace: Trace | None = None


@dataclass
class InstrumentationSession:
    """A session that records inside kernels."""

    name: str
    data: str
    mode: InstrumentationMode
    hook: str | None
    context: str | None
    active: bool = True
    started_ns: int = field(default_factory=time.time_ns)
    segments: list[Segment] = field(default_factory=list)

    @property
    def traces(self) -> list[Trace]:
        return [segment.trace for segment in self.segments if segment.trace is not None]


@dataclass
class ForeignSession:
    """A session of another backend, which Proton itself runs."""

    proton: Any
    number: int


_numbers = iter(range(1 << 62))
sessions: dict[int, InstrumentationSession | ForeignSession] = {}
_segment: list[Segment] = []
"""The segment that is open, recording or paused."""


def add(session: InstrumentationSession | ForeignSession) -> int:
    """Begin a session and return its number."""
    number = next(_numbers)
    sessions[number] = session
    try:
        if isinstance(session, InstrumentationSession):
            log.start()
            follow()
        else:
            forward_to.append(session.proton)
    except BaseException:  # raised again: a session that did not begin must not be listed, Ctrl-C included
        remove(number)
        raise
    return number


def remove(number: int) -> InstrumentationSession | ForeignSession:
    """End a session; its segments hold what it recorded."""
    session = sessions.pop(number)
    if isinstance(session, ForeignSession):
        forward_to.remove(session.proton)
        return session
    try:
        for segment in [one for one in _segment if number in one.sessions]:
            _close(segment)
        follow()
    finally:
        log.stop()
    return session


def newest_profile() -> Profile | None:
    """The profile that is recording, or recorded last."""
    return _segment[0].profile if _segment else None


def follow() -> None:
    """Let the profile follow the sessions that are active now; a new set of sessions gets a new segment."""
    active = frozenset(
        number for number, one in sessions.items() if isinstance(one, InstrumentationSession) and one.active
    )
    if _segment and active and active != _segment[0].sessions:
        _close(_segment[0])
    if not _segment:
        if active:
            _open(active)
    elif active and not _segment[0].running:
        _segment[0].profile.resume()
        cache_plain_kernels_apart(True)
    elif not active and _segment[0].running:
        _segment[0].profile.pause()
        cache_plain_kernels_apart(False)
    if _segment:
        _segment[0].running = bool(active)


def _open(active: frozenset[int]) -> None:
    taking_part = [one for number in sorted(active) if isinstance(one := sessions[number], InstrumentationSession)]
    # One profile serves them all, so the first session's mode decides.
    profile = Profile(**taking_part[0].mode.options())
    profile.__enter__()
    cache_plain_kernels_apart(True)
    segment = Segment(profile, active)
    _segment.append(segment)
    for session in taking_part:
        session.segments.append(segment)


def _close(segment: Segment) -> None:
    _segment.remove(segment)
    try:
        segment.profile.__exit__(None, None, None)
    except WarplensError as problem:
        # A session without a launch is no mistake in Proton.
        if segment.profile.seen:
            segment.profile.note("proton", str(problem))
    finally:
        cache_plain_kernels_apart(False)
        if segment.profile.has_trace:
            segment.trace = segment.profile.trace


def cache_plain_kernels_apart(on: bool) -> None:
    """Let Triton compile kernels again for a session, as programs written for Proton expect."""
    import triton

    if triton_version() < (3, 9):
        triton.knobs.compilation.instrumentation_mode = "warplens" if on else ""
        return
    # From 3.9 on, that setting would drop the user's maxnreg; but a hook is part of the key of Triton's caches.
    runtime = triton.knobs.runtime
    if runtime.add_stages_inspection_hook is (None if on else _own_key):
        runtime.add_stages_inspection_hook = _own_key if on else None


def _own_key(*stages: object) -> tuple[str, str]:
    """A hook of Triton's compiler that changes nothing."""
    return "warplens", "warplens"
