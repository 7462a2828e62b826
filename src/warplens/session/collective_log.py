"""The collectives that a rank called, with their times, in bounded memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

from warplens.launch.clock_stamps import ClockStamps
from warplens.record.rank_notes import CollectiveCall

MOST_CALLS = 8192
"""With more calls, only every second is kept, then every fourth, and so on: the same ones on all ranks."""


@dataclass
class OpenCall:
    """A call that was noted when it began; `end_ns` is 0 until it ends. Slots are stamps of the device."""

    group: str
    number: int
    operation: str
    waits_for: str
    begin_ns: int
    end_ns: int = 0
    device: int = 0
    stamps: ClockStamps | None = None
    begin_slot: int = 0
    end_slot: int = 0

    def noted(self) -> CollectiveCall:
        begin, end = (self.stamps.read(slot) if self.stamps else 0 for slot in (self.begin_slot, self.end_slot))
        own = (self.group, self.number, self.operation, self.waits_for, self.begin_ns, self.end_ns)
        return CollectiveCall(*own, self.device, begin, end)


class CollectiveLog:
    """The calls of one profile, from any thread."""

    def __init__(self, most: int = MOST_CALLS) -> None:
        self._most, self._every = most, 1
        self._calls: list[OpenCall] = []
        self._counts: dict[str, int] = {}
        self._lock = threading.Lock()

    def begin(self, group: str, operation: str, waits_for: str, begin_ns: int) -> OpenCall | None:
        """Note a call; None where it is not kept."""
        with self._lock:
            number = self._counts.get(group, 0)
            self._counts[group] = number + 1
            if number % self._every:
                return None
            if len(self._calls) >= self._most:
                self._thin()
            call = OpenCall(group, number, operation, waits_for, begin_ns)
            self._calls.append(call)
            return call

    def _thin(self) -> None:
        self._every *= 2
        kept = []
        for call in self._calls:
            if call.number % self._every == 0:
                kept.append(call)
            elif call.stamps is not None:
                call.stamps.give(call.begin_slot)
                call.stamps.give(call.end_slot)
        self._calls = kept

    def __len__(self) -> int:
        return sum(self._counts.values())

    def noted(self) -> Sequence[CollectiveCall]:
        """The calls so far."""
        with self._lock:
            return [call.noted() for call in self._calls]
