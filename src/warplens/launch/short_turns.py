"""Python's lock in short turns, while a thread of warplens works beside the program."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

TURN_S = 2e-5
"""How long a thread keeps Python's lock while another waits for it; Python's own default is 5 ms."""
_SET_TIMER_SLACK, _GET_TIMER_SLACK, _PRECISE_NS = 29, 30, 1

_lock = threading.Lock()
_blocks = 0
_before = _set = 0.0


class _Waits(threading.local):
    """What the timer slack of a thread was before its waits ended on time; None where they do not."""

    before: int | None = None


_waits = _Waits()


def wait_precisely(precise: bool = True) -> None:
    """Let the short waits of this thread end on time, or as before. A thread that wants Python's lock waits for a turn
    to end before it asks for the lock, and Linux lets such a wait take 50 us more to save power."""
    before = _waits.before
    if (before is not None) == precise or sys.platform != "linux":
        return
    control = ctypes.CDLL(None).prctl
    _waits.before = int(control(_GET_TIMER_SLACK)) if precise else None
    control(_SET_TIMER_SLACK, ctypes.c_ulong(_PRECISE_NS if before is None else before))


@contextmanager
def short_turns() -> Iterator[None]:
    """Inside the block, a thread that wants to launch a kernel waits for Python's lock for TURN_S or little more."""
    global _blocks, _before, _set
    with _lock:
        _blocks += 1
        if _blocks == 1:
            _before = sys.getswitchinterval()
            sys.setswitchinterval(min(TURN_S, _before))
            _set = sys.getswitchinterval()
    try:
        yield
    finally:
        with _lock:
            _blocks -= 1
            if not _blocks and sys.getswitchinterval() == _set:  # else the program has chosen it meanwhile
                sys.setswitchinterval(_before)
