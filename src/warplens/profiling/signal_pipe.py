"""Lets a thread hear of signals while the main thread is blocked in a C call, where Python runs no signal handler."""

from __future__ import annotations

import ctypes
import os
import select
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType

from warplens.forks import in_forked_children

ENDING = tuple(getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that ask a program to end."""


class SignalPipe:
    """Python's own C handler writes the number of each signal it handles to a pipe, at once and in any state of the
    interpreter. Signals without a Python handler are not heard of."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        self._before = -1
        self._changed: list[int] = []
        self._installed = False
        self._stop_forking: Callable[[], None] = lambda: None
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)

    def install(self) -> None:
        """Hear of signals from now on. Only the main thread can ask for that."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            self._installed = True
            self._stop_forking = in_forked_children(self._leave_to_parent)

    def _leave_to_parent(self) -> None:
        """A forked child's signals are not the parent's."""
        signal.set_wakeup_fd(-1)
        self._put_back()
        self._installed = False

    def end_on_sigterm(self) -> None:
        """Let SIGTERM end the program as sys.exit does, so that it is heard of and the profile ends."""
        if self._installed and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _exit_on)
            self._changed.append(signal.SIGTERM)

    def put_off_death(self) -> None:
        """Only hear of signals that would end the program at once, until `die_by` lets them."""
        for number in ENDING:
            if self._installed and signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, _only_heard)
                self._changed.append(number)

    def is_put_off(self, number: int) -> bool:
        """Whether a signal has no effect but to be heard."""
        return signal.getsignal(number) is _only_heard

    def remove(self) -> None:
        """Put back what was there before, unless somebody else has changed it since."""
        if self._installed and threading.current_thread() is threading.main_thread():
            found = signal.set_wakeup_fd(self._before)
            if found != self._writer:
                signal.set_wakeup_fd(found)
            self._put_back()
        self._stop_forking()
        self._installed = False

    def _put_back(self) -> None:
        for number in self._changed:
            if signal.getsignal(number) in (_exit_on, _only_heard):
                signal.signal(number, signal.SIG_DFL)

    def close(self) -> None:
        for end in (self._reader, self._writer):
            os.close(end)

    def wake(self) -> None:
        """Let `wait` return."""
        with suppress(BlockingIOError):
            os.write(self._writer, b"\0")

    def wait(self, seconds: float | None) -> list[int]:
        """The ending signals that arrived, or nothing after so many seconds or after `wake`."""
        if not select.select([self._reader], [], [], seconds)[0]:
            return []
        data = os.read(self._reader, 4096)
        heard = bytes(number for number in data if number)
        if heard and self._before >= 0:
            with suppress(OSError):  # whoever listened before hears it too
                os.write(self._before, heard)
        return [number for number in heard if number in ENDING]


def _exit_on(number: int, frame: FrameType | None) -> None:
    signal.signal(number, signal.SIG_DFL)
    raise SystemExit(128 + number)


def _only_heard(number: int, frame: FrameType | None) -> None:
    return


def die_by(number: int) -> None:
    """End the program by a signal, from any thread: only the main thread may ask Python to."""
    handler = ctypes.CDLL(None).signal
    handler.argtypes, handler.restype = (ctypes.c_int, ctypes.c_void_p), ctypes.c_void_p
    handler(number, None)  # SIG_DFL
    os.kill(os.getpid(), number)
