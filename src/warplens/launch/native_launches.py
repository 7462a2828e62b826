"""Recorded launches that the library in front of the driver makes by itself (native/driver_hooks/ready.c).

Memory for the next launches of a variant lies on a shelf. A thread that launches takes the next of it, makes the launch
and marks its event, all in C: it needs neither Python nor Python's lock. What was made is learned from the shelf later.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from ctypes import c_int, c_int64, c_uint32, c_uint64, c_void_p
from typing import NamedTuple

import numpy as np

from warplens.driver.kernel_arguments import Shape
from warplens.driver.libcuda import Driver
from warplens.launch.collected_run import CollectedRun
from warplens.launch.variant import Variants
from warplens.launch.woven import WovenLaunch
from warplens.native import address
from warplens.native.driver_hooks import load_hooks

_READY = np.dtype(
    [(name, np.uint64) for name in ("pointer", "event", "stream", "number")]
    + [("time_ns", np.int64), ("state", np.int32), ("status", np.int32)]
)
"""One launch, as `wl_ready` in hooks.h."""
_FREE, _MADE = 0, 2


class NativeTarget(NamedTuple):
    """What the program launches, and what is launched in its place."""

    handle: int
    """A function, or a kernel of a library."""
    shape: Shape
    twin: int
    parameters: int
    """The number of the plain kernel's parameters; the buffer comes behind them."""


class Shelf:
    """Launches of one variant that may be made in C, in order."""

    def __init__(self, launches: Sequence[WovenLaunch]) -> None:
        self.launches, self.handle, self._seen = launches, 0, 0
        self.places = np.zeros(len(launches), _READY)
        self.places["pointer"] = [launch.pointer for launch in launches]
        self.places["event"] = launches[0].engine.take_events(len(launches))

    def made(self) -> list[tuple[int, int, WovenLaunch]]:
        """The launches that were made since the last call: their number among all, the host's time, and they."""
        states = self.places["state"][self._seen :]
        new = np.flatnonzero(states == _MADE)
        if not self.handle:  # nothing is under way any more
            end = len(self.places)
        else:
            others = np.flatnonzero(states != _MADE)
            end = self._seen + int(others[0] if len(others) else len(states))
            new = new[: end - self._seen]
        found = []
        for at in (new + self._seen).tolist():
            _, event, stream, number, time_ns, _, status = self.places[at].item()
            self.launches[at].made(stream, event, status)
            found.append((number, time_ns, self.launches[at]))
        self._seen = end
        return found

    @property
    def count(self) -> int:
        """How many launches there are of which `made` has not told."""
        return len(self.places) - self._seen

    def left(self) -> list[WovenLaunch]:
        """Those that were not made, once nobody takes any more; their events are given back."""
        unmade = np.flatnonzero(self.places["state"] != _MADE).tolist()
        for at in unmade:
            self.launches[at].engine.give_event(int(self.places["event"][at]))
        return [self.launches[at] for at in unmade]

    @property
    def refused(self) -> int:
        """How many launches the driver did not take."""
        return int(np.count_nonzero((self.places["state"] != _MADE) & (self.places["state"] != _FREE)))


class NativeLaunches:
    """The shelves of one session."""

    def __init__(self, library: ctypes.CDLL, lib: Driver, run: CollectedRun, variants: Variants) -> None:
        library.wl_ready_offer.restype = c_void_p
        library.wl_ready_offer.argtypes = [c_uint64, c_void_p, c_uint64, c_uint64, c_int, c_void_p, c_int64]
        library.wl_ready_withdraw.argtypes = [c_void_p]
        library.wl_ready_driver(*(c_void_p(one) for one in lib.launch_calls()[:3]))
        self._library, self._run, self._variants = library, run, variants
        self._shelves: list[Shelf] = []
        self._taken = c_uint64.in_dll(library, "wl_ready_taken")
        self._fetched = int(self._taken.value)
        """Of all launches that were taken from shelves, how many are known here."""
        self._lock = threading.Lock()
        self._closed = False
        run.fetch = self.fetch

    @staticmethod
    def of(lib: Driver, run: CollectedRun, variants: Variants) -> NativeLaunches | None:
        """None where the library cannot be had."""
        library, _ = load_hooks()
        return None if library is None else NativeLaunches(library, lib, run, variants)

    def offer(self, launches: Sequence[WovenLaunch], target: NativeTarget) -> Shelf | None:
        """Let launches of one variant and context be made in C; None where that is not possible."""
        shelf, shape = Shelf(launches), target.shape
        sizes = (c_uint32 * 7)(*shape.grid, *shape.block, shape.shared)
        context, places = launches[0].engine.context, address(shelf.places)
        with self._lock:
            if self._closed:
                shelf.left()
                return None
            handle = self._library.wl_ready_offer(
                target.handle, sizes, context, target.twin, target.parameters, places, len(launches)
            )
            if not handle:
                shelf.left()
                return None
            shelf.handle = handle
            self._shelves.append(shelf)
        return shelf

    def fetch(self) -> None:
        """Learn which launches were made."""
        if self._taken.value != self._fetched:
            with self._lock:
                self._fetch()

    def _fetch(self) -> None:
        made = sorted((one for shelf in self._shelves for one in shelf.made()), key=lambda one: one[0])
        self._fetched += len(made)
        for _, time_ns, launch in made:
            self._run.add_made(launch, time_ns)
            self._variants.count_made(launch.variant)

    def withdraw(self, shelf: Shelf) -> list[WovenLaunch]:
        """Let no more be made of what lies on a shelf; return what was not made, in order."""
        with self._lock:
            if shelf not in self._shelves:
                return []
            self._library.wl_ready_withdraw(shelf.handle)
            shelf.handle = 0
            self._fetch()
            self._fetched += shelf.refused
            self._shelves.remove(shelf)
        return shelf.left()

    def open(self, *, again: bool) -> None:
        """Accept launches, or take all back and accept none."""
        with self._lock:
            self._closed = not again
        for shelf in [] if again else list(self._shelves):
            for launch in self.withdraw(shelf):
                launch.cancel()
