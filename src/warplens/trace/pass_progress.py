"""How far a pass over the rows of a trace has come, for whoever shows it."""

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
    """Tell that a pass has gone through so many rows."""
    for listener in _listeners:
        listener(rows, total)
