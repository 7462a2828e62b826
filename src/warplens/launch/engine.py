"""What the launches of one context share: memory for their records, and the way to the host."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

from warplens.driver.libcuda import Driver
from warplens.launch.arena import Arena, Range
from warplens.launch.clock_stamps import ClockStamps
from warplens.launch.collector import Collector
from warplens.launch.running_copy import RunningCopy
from warplens.launch.side_copy import SideCopy

MEMORY_SHARE = 0.25
"""Of the device's memory, what records may take unless `memory=` says otherwise; at most half of what is free."""
CROWDED_SHARE = 0.5
"""Of the budget, what may be in use before records are brought home although the program goes on launching."""

_EVENTS_AT_ONCE = 32


class Engine:
    """Made in the context that it serves. `land` brings several of its launches to the host, and its thread calls
    `idle` where there is none. `launched` counts the launches of the program."""

    def __init__(
        self,
        lib: Driver,
        land: Callable[[Sequence[Any]], None],
        memory: int | None = None,
        *,
        watched: bool = False,
        idle: Callable[[], bool] = lambda: False,
        launched: Callable[[], int] = lambda: 0,
    ) -> None:
        free, total = lib.memory()
        self.lib, self.context, self.device, self.land = lib, lib.context(), lib.device(), land
        self.budget = min(int(total * MEMORY_SHARE), free // 2) if memory is None else memory
        self._stream = lib.stream()
        self.arena = Arena(lib, self._stream, self.budget)
        self.copy = SideCopy(lib, self._stream)
        self.collector = Collector(
            lambda: self.in_use > CROWDED_SHARE * self.budget, lib.relaxed, lib.speed_up, idle, launched
        )
        self.running_copy = RunningCopy(lib, self.context) if watched else None
        """How records are copied while their kernel runs, where somebody watches for kernels that do not end."""
        self._stamps: ClockStamps | None = None
        self._stamps_lock = threading.Lock()
        self.in_use = 0
        self._events: list[int] = []

    def take(self, size: int, alignment: int, stream: int) -> Range | None:
        """Zeroed memory for a launch on `stream`. Where there is no more, earlier launches are brought home first."""
        found = self.arena.take(size, alignment, stream)
        more = True
        while found is None and more:
            # Where none is left to bring home, another thread has just done it.
            more = self.collector.land_oldest()
            found = self.arena.take(size, alignment, stream)
        if found is not None:
            self.in_use += size
        return found

    def take_zeroed(self, size: int, alignment: int) -> Range | None:
        """Memory for launches on any stream; None where there is none at once."""
        found = self.arena.take(size, alignment, None)
        if found is not None:
            self.in_use += size
        return found

    def give(self, range_: Range, pitch: int, width: int) -> None:
        """Take memory back, of which the first `width` bytes of every `pitch` bytes may be dirty."""
        self.in_use -= range_.size
        self.arena.give(range_, pitch, width)

    def mark(self, stream: int) -> int:
        """An event that is reached when all that was given to `stream` is done."""
        events = self._events
        if not events:
            events.extend(self.lib.new_events(_EVENTS_AT_ONCE))
        event = events.pop()
        self.lib.mark(event, stream)
        return event

    def take_events(self, count: int) -> list[int]:
        """Events for launches that others mark."""
        while len(self._events) < count:
            self._events.extend(self.lib.new_events(_EVENTS_AT_ONCE))
        return [self._events.pop() for _ in range(count)]

    def give_event(self, event: int) -> None:
        self._events.append(event)

    @property
    def stamps(self) -> ClockStamps:
        """Readings of the device's globaltimer. Call it inside the context."""
        if self._stamps is None:
            with self._stamps_lock:
                self._stamps = self._stamps or ClockStamps(self.lib)
        return self._stamps

    def release(self) -> None:
        """Give all memory back to the driver. Every launch must have been brought home."""
        self.collector.close()
        with self.lib.inside(self.context):
            self.arena.release()
            self.copy.release()
            if self.running_copy is not None:
                self.running_copy.release()
            if self._stamps is not None:
                self._stamps.release()
            for event in self._events:
                self.lib.destroy_event(event)
            self._events.clear()
            self.lib.destroy_stream(self._stream)
