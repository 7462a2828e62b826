"""Brings the records of finished launches to the host while the program goes on.

A thread does it when the program has paused launching for a moment, or when the device's memory for records runs low.
While launches come thick and fast it stays away: it would only take Python's lock from them.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol

PAUSE_S = 0.005
"""Without a new launch for this long, the program is taken to be busy with something else."""


class Landing(Protocol):
    """A launch on its way: `over` says whether the device has finished it, `land` copies its records to the host and
    raises nothing: what went wrong is kept by the launch."""

    def over(self) -> bool: ...

    def land(self) -> None: ...


class Collector:
    """Launches in the order in which they were made. `crowded` says that device memory runs low."""

    def __init__(self, crowded: Callable[[], bool]) -> None:
        self._crowded = crowded
        self._waiting: deque[Landing] = deque()
        self._landing = threading.Lock()
        """Held while launches land, so that no two threads copy at once."""
        self._wake = threading.Event()
        self._newest = 0.0
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, launch: Landing) -> None:
        """Follow a launch that was just made."""
        self._waiting.append(launch)
        self._newest = time.monotonic()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="warplens-collector", daemon=True)
            self._thread.start()
        if not self._wake.is_set():
            self._wake.set()

    def land_oldest(self) -> bool:
        """Wait for the oldest launch and bring it home; False where there is none."""
        with self._landing:
            if not self._waiting:
                return False
            self._waiting.popleft().land()
            return True

    def land_all(self) -> None:
        """Wait for every launch and bring it home."""
        while self.land_oldest():
            pass

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait()
            if self._closed:
                return
            if not self._waiting:
                self._wake.clear()
                continue
            quiet = time.monotonic() - self._newest > PAUSE_S
            if not (quiet or self._crowded()) or not self._land_finished():
                time.sleep(PAUSE_S)

    def _land_finished(self) -> bool:
        """Bring the oldest launch home if it is over."""
        with self._landing:
            if not self._waiting or not self._waiting[0].over():
                return False
            self._waiting.popleft().land()
            return True
