"""The progress of a pass over the rows of a trace, for progress bars."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

Listener = Callable[[int, int], None]
"""Gets the rows that a pass has gone through and those that it goes through in all; a lower number is a new pass."""

_listeners: list[Listener] = []


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """Tell `listener` of all passes in this block, in whichever thread."""
    _listeners.append(listener)
    try:
        yield
    finally:
        _listeners.remove(listener)


def passed(rows: int, total: int) -> None:
    """Report the rows that a pass has gone through."""
    for listener in _listeners:
        listener(rows, total)
