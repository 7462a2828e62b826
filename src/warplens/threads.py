"""Background threads that leave signals to the program, and values that hold in one thread only."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

_OF_THE_THREAD = ("SIGABRT", "SIGBUS", "SIGFPE", "SIGILL", "SIGPROF", "SIGSEGV", "SIGSYS", "SIGTRAP")
"""Signals about the thread that gets them."""


class BackgroundThread(threading.Thread):
    """A daemon thread that blocks the signals which are sent to the process.

    The system gives such a signal to any thread. Python runs its handler in the main thread, but if another thread
    got the signal, the main thread goes on with the sleep or the read that it is blocked in, and Ctrl-C has no effect.
    """

    def __init__(self, target: Callable[..., object], name: str, **call: Any) -> None:
        super().__init__(target=target, name=name, daemon=True, **call)

    def start(self) -> None:
        if not hasattr(signal, "pthread_sigmask"):
            super().start()
            return
        # A thread inherits the mask of the thread that starts it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, _sent_to_process())
        try:
            super().start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _sent_to_process() -> set[signal.Signals]:
    return {one for one in signal.Signals if one.name not in _OF_THE_THREAD}


@contextmanager
def assigned(local: threading.local, **values: Any) -> Iterator[None]:
    """Inside the block, attributes of `local` have these values for this thread; after it, those from before."""
    before = {name: getattr(local, name) for name in values}
    vars(local).update(values)
    try:
        yield
    finally:
        vars(local).update(before)
