"""The collectives that a rank called, with their times, in bounded memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from warplens.launch.clock_stamps import ClockStamps
from warplens.record.rank_notes import CollectiveCall

MOST_CALLS = 8192
"""With more calls, only every second is kept, then every fourth, and so on: the same ones on all ranks."""

_NEWEST_CALLS = 256
"""Calls of each group among which the one that the device is at is looked for."""
_MOST_GROUPS = 8


class CollectivePosition(NamedTuple):
    """Where a rank is in the collectives of a group: the newest that it has entered, when, and if it is still in it."""

    group: str
    number: int
    operation: str
    waits_for: str
    entered_ns: int
    on_device: bool
    """Whether `entered_ns` is of the device's globaltimer and not of the host's clock."""
    inside: bool


@dataclass
class OpenCall:
    """A call that was noted when it began; `end_ns` is 0 until it ends. Slots are stamps of the device.

    A call that is not `kept` is only there for as long as it is one of the newest, and has no stamps.
    """

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
    kept: bool = True
    returned: bool = False
    """Whether the program goes on after the call."""

    def position(self) -> CollectivePosition | None:
        """None where the device has not reached the call."""
        entered = self.stamps.read(self.begin_slot) if self.stamps and self.begin_slot else 0
        if self.begin_slot and not entered:
            return None
        queued = bool(self.stamps and self.end_slot and not self.stamps.read(self.end_slot))
        own = (self.group, self.number, self.operation, self.waits_for)
        return CollectivePosition(*own, entered or self.begin_ns, entered > 0, queued or not self.returned)

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
        self._newest: dict[str, deque[OpenCall]] = {}
        self._lock = threading.Lock()

    def begin(self, group: str, operation: str, waits_for: str, begin_ns: int) -> OpenCall:
        """Note a call."""
        with self._lock:
            number = self._counts.get(group, 0)
            self._counts[group] = number + 1
            call = OpenCall(group, number, operation, waits_for, begin_ns, kept=number % self._every == 0)
            self._newest.setdefault(group, deque(maxlen=_NEWEST_CALLS)).append(call)
            if call.kept:
                if len(self._calls) >= self._most:
                    self._thin()
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
                call.begin_slot = call.end_slot = 0  # they may be of another call from now on
        self._calls = kept

    def __len__(self) -> int:
        return sum(self._counts.values())

    def noted(self) -> Sequence[CollectiveCall]:
        """The calls so far."""
        with self._lock:
            return [call.noted() for call in self._calls]

    def positions(self) -> list[CollectivePosition]:
        """Where the rank is, in each of the groups that it used last."""
        with self._lock:
            newest = [list(calls) for calls in self._newest.values()]
        groups = sorted(newest, key=lambda calls: calls[-1].begin_ns, reverse=True)[:_MOST_GROUPS]
        found = (next(filter(None, (call.position() for call in reversed(calls))), None) for calls in groups)
        return [position for position in found if position is not None]
