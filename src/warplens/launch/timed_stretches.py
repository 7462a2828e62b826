"""Stretches in which the program times its own launches. What warplens does in the background waits meanwhile.

A launch gives up Python's lock. A thread that works takes it then, and the launch has to wait for it: the program would
measure that, too.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_open = 0


@contextmanager
def timed_stretch() -> Iterator[None]:
    """The program times launches inside the block."""
    global _open
    with _lock:
        _open += 1
    try:
        yield
    finally:
        with _lock:
            _open -= 1


def is_timed() -> bool:
    """Whether any thread of the program times launches now."""
    return _open > 0
