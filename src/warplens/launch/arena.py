"""Device memory for the records of many launches: taken from the driver in slabs, handed out zeroed, used again."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field

from warplens.driver.libcuda import Driver
from warplens.errors import WarplensError
from warplens.launch.free_ranges import FreeRanges

SLAB_BYTES = 64 << 20
"""The least that is taken from the driver at once."""
_LARGE_SLAB_BYTES = 256 << 20
"""A program that goes on recording gets slabs of up to this size, so that the driver is asked less often."""
_APART = 512
"""Unused bytes behind each slab. The driver may put two slabs side by side, and one copy cannot read from both: without
these bytes, launches at the end of one slab and at the start of the next would be copied together."""


@dataclass(frozen=True)
class Range:
    """Zeroed bytes of the arena, lent to one launch."""

    address: int
    size: int


@dataclass
class _Slab:
    address: int
    ranges: FreeRanges
    cleared: int
    """The event behind the slab's first zeroing; 0 once it is over."""


@dataclass
class Arena:
    """The memory of one context. `stream` is where ranges are zeroed, beside the program's own streams.

    A range is zeroed when it comes back, not when it is handed out, so a launch waits for nothing in the steady state.
    """

    lib: Driver
    stream: int
    budget: int
    held: int = 0
    """Bytes taken from the driver."""
    _slabs: list[_Slab] = field(default_factory=list)
    _returning: deque[tuple[int, Range]] = field(default_factory=deque)
    """Ranges whose zeroing may still run, each with the event behind it."""
    _events: list[int] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, size: int, alignment: int, stream: int | None) -> Range | None:
        """Zeroed memory for a launch on `stream`; None where the budget or the device has no more. Without a stream,
        memory whose zeroing is over, for any stream; the host does not wait for it."""
        with self._lock:
            self._reclaim(wait=False)
            found = self._find(size, alignment, stream) or self._grow(size, alignment, stream)
            if stream is None:
                return found
            while found is None and self._returning:
                self._reclaim(wait=True)
                found = self._find(size, alignment, stream)
            return found

    def give(self, range_: Range, pitch: int, width: int) -> None:
        """Take a range back: zero `width` bytes of each row of `pitch` bytes, and hand it out again after that."""
        with self._lock:
            self.lib.clear_rows(range_.address, pitch, width, range_.size // pitch, self.stream)
            event = self._events.pop() if self._events else self.lib.new_event()
            self.lib.mark(event, self.stream)
            self._returning.append((event, range_))

    def release(self) -> None:
        """Give all memory back to the driver; nothing may be in use any more."""
        with self._lock:
            for slab in self._slabs:
                self.lib.free(slab.address)
            clearing = [slab.cleared for slab in self._slabs if slab.cleared]
            for event in (*self._events, *clearing, *(event for event, _ in self._returning)):
                self.lib.destroy_event(event)
            self._slabs.clear()
            self._returning.clear()
            self._events.clear()
            self.held = 0

    def _reclaim(self, *, wait: bool) -> None:
        """Free the ranges that are zeroed by now; with `wait`, wait for the oldest of them."""
        while self._returning:
            event, range_ = self._returning[0]
            if wait:
                self.lib.wait(event)
                wait = False
            elif not self.lib.reached(event):
                return
            self._returning.popleft()
            self._events.append(event)
            self._slab_of(range_.address).ranges.give(range_.address, range_.size)

    def _slab_of(self, address: int) -> _Slab:
        return next(slab for slab in self._slabs if address in slab.ranges)

    def _find(self, size: int, alignment: int, stream: int | None) -> Range | None:
        # The newest slab is the one with room while launches come faster than they are brought home.
        for slab in reversed(self._slabs):
            if slab.cleared and self.lib.reached(slab.cleared):
                self._events.append(slab.cleared)
                slab.cleared = 0
            if slab.cleared and stream is None:
                continue
            address = slab.ranges.take(size, alignment)
            if address is not None:
                if slab.cleared and stream is not None:
                    self.lib.hold(stream, slab.cleared)
                return Range(address, size)
        return None

    def _grow(self, size: int, alignment: int, stream: int | None) -> Range | None:
        """One more slab, if the budget and the device allow it."""
        wanted = max(SLAB_BYTES, 1 << (size + alignment - 1).bit_length())
        for slab_size in (max(wanted, min(self.held, _LARGE_SLAB_BYTES)), wanted, size + alignment):
            if self.held + slab_size <= self.budget:
                break
        else:
            return None
        try:
            address = self.lib.allocate(slab_size + _APART)
        except WarplensError:
            return None
        self.lib.clear(address, slab_size, self.stream)
        event = self._events.pop() if self._events else self.lib.new_event()
        self.lib.mark(event, self.stream)
        self._slabs.append(_Slab(address, FreeRanges(address, slab_size), event))
        self.held += slab_size
        return self._find(size, alignment, stream)
