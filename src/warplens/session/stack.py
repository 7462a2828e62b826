"""The stack of running sessions, and the front ends that every session starts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from warplens.errors import WarplensError

if TYPE_CHECKING:
    from warplens.session.session import Session

StartFrontEnd: TypeAlias = "Callable[[Session], Callable[[], None] | None]"
"""Called when a session starts; returns what to call when it ends, or None."""

front_ends: list[StartFrontEnd] = []
_running: list[Session] = []


def active() -> Session | None:
    """The running session, unless there is none or WARPLENS=0 switches it off."""
    return _running[-1] if _running and _running[-1].enabled else None


def is_running(session: Session) -> bool:
    """Return whether a session is the one that launches go to."""
    return bool(_running) and _running[-1] is session


def attach(start: StartFrontEnd) -> None:
    """Start a front end with every session from now on, the running one included."""
    running = active()
    if running is not None:
        running.join(start)
    front_ends.append(start)


def check_free() -> Session | None:
    """Refuse a second session, except inside a program that warplens runs. Return the session to interrupt."""
    running = active()
    if running is not None and not running.whole_program:
        raise WarplensError("a profile is already running; end it before starting another")
    return running


def push(session: Session) -> None:
    _running.append(session)


def remove(session: Session) -> None:
    if session in _running:
        _running.remove(session)
