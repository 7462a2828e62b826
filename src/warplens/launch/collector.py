"""Brings the records of finished launches to the host while the program goes on.

A thread does it while the program launches little, or when the device's memory for records runs low. While launches
come thick and fast, recorded or not, it stays away: it would only take Python's lock from them. Where it works, it
gives the lock back soon. For the same reason its priority is that of the program: if another thread displaced it while
it has the lock, a launch would wait for both.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from warplens.launch.short_turns import short_turns
from warplens.launch.timed_stretches import is_timed
from warplens.threads import BackgroundThread

if TYPE_CHECKING:
    from warplens.launch.woven import WovenLaunch

PAUSE_S = 0.005
"""How long the thread sleeps where it has nothing to do, or should do nothing."""
LONGEST_PAUSE_S = 0.1
FEW_PER_S = 400
"""A program that makes fewer launches per second is taken to be busy with something else."""

LARGE_BATCH, BATCH, SMALL_BATCH = 512, 64, 16
"""Launches that come home together: at the end of the profile, where one needs their memory, and while the program
runs, when a launch that comes meanwhile should not wait long for Python's lock."""


class Collector:
    """Launches in the order in which they were made. `crowded` says that device memory runs low. The thread calls
    `begin` first, and runs inside `relaxed`, where the program's captures into graphs do not forbid what it asks of the
    driver. With nothing to bring home it calls `idle`, which does a little work and returns whether there was any.
    `launched` counts the launches that the program makes, also those that are not recorded."""

    def __init__(
        self,
        crowded: Callable[[], bool],
        relaxed: Callable[[], AbstractContextManager[None]] = nullcontext,
        begin: Callable[[], None] = lambda: None,
        idle: Callable[[], bool] = lambda: False,
        launched: Callable[[], int] = lambda: 0,
    ) -> None:
        self._crowded, self._relaxed, self._begin, self._idle = crowded, relaxed, begin, idle
        self._launched = launched
        self._waiting: deque[WovenLaunch] = deque()
        self._landing = threading.Lock()
        """Held while launches land, so that no two threads copy at once."""
        self._wake = threading.Event()
        self._awake = False
        """Whether the thread looks for launches by itself."""
        self._added = 0
        self._thread: threading.Thread | None = None
        self._closed = False

    def add(self, launch: WovenLaunch) -> None:
        """Follow a launch that was just made."""
        self._waiting.append(launch)
        self._added += 1
        if not self._awake:
            self._wake_up()

    def _wake_up(self) -> None:
        self._awake = True
        if self._thread is None:
            self._thread = BackgroundThread(self._run, "warplens-collector")
            self._thread.start()
        self._wake.set()

    def land_oldest(self, most: int = BATCH) -> bool:
        """Wait for the oldest launches and bring them home; False where there is none."""
        return self._land(most, wait=True)

    def land_finished(self) -> None:
        """Bring the launches home that are over, without waiting for the device."""
        while self._land(SMALL_BATCH, wait=False):
            pass

    def close(self) -> None:
        """End the thread."""
        self._closed = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        self._begin()
        with self._relaxed():
            self._land_until_closed()

    def _land_until_closed(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._land_while_there_is_work()
            self._wake.clear()
            self._awake = False
            if self._waiting:  # a launch was added before it could see that nobody looks
                self._awake = True
                self._wake.set()

    def _land_while_there_is_work(self) -> None:
        seen, launched, looked, pause = self._added, self._launched(), time.monotonic(), PAUSE_S
        while not self._closed:
            time.sleep(pause)
            now, added, all_launches = time.monotonic(), self._added, self._launched()
            calm = max(added - seen, all_launches - launched) <= (now - looked) * FEW_PER_S and not is_timed()
            # A program that launches, but nothing that is recorded, is disturbed more and more rarely.
            pause = PAUSE_S if calm or added != seen else min(2 * pause, LONGEST_PAUSE_S)
            seen, launched, looked = added, all_launches, now
            while not self._closed and self._work(calm):
                calm = calm and (self._added, self._launched()) == (seen, launched) and not is_timed()
            if not self._waiting:
                return

    def _work(self, calm: bool) -> bool:
        """Bring launches home, or else do some other work; return whether there was any that may be done now."""
        if not calm and not self._crowded():
            return False
        with short_turns():
            return self._land(SMALL_BATCH, wait=False) or (calm and self._idle())

    def _land(self, most: int, *, wait: bool) -> bool:
        """Bring a batch home: launches that are over, and with `wait` the others too."""
        with self._landing:
            batch: list[WovenLaunch] = []
            while self._waiting and len(batch) < most and (wait or self._waiting[0].over()):
                batch.append(self._waiting.popleft())
            if batch:
                batch[0].land(batch)
            return bool(batch)
