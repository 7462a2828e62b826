"""Lets a thread hear of signals while the main thread is blocked in a C call, where Python runs no signal handler."""

from __future__ import annotations

import os
import select
import signal
import threading
from contextlib import suppress
from types import FrameType

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
        for end in (self._reader, self._writer):
            os.set_blocking(end, False)

    def install(self) -> None:
        """Hear of signals from now on. Only the main thread can ask for that."""
        if threading.current_thread() is threading.main_thread():
            self._before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
            self._installed = True

    def end_on_sigterm(self) -> None:
        """Let SIGTERM end the program as sys.exit does, so that it is heard of and the profile ends."""
        if self._installed and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            signal.signal(signal.SIGTERM, _exit_on)
            self._changed.append(signal.SIGTERM)

    def remove(self) -> None:
        """Put back what was there before, unless somebody else has changed it since."""
        if self._installed and threading.current_thread() is threading.main_thread():
            found = signal.set_wakeup_fd(self._before)
            if found != self._writer:
                signal.set_wakeup_fd(found)
            for number in self._changed:
                if signal.getsignal(number) is _exit_on:
                    signal.signal(number, signal.SIG_DFL)
        self._installed = False

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
