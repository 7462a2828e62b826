"""Launches whose memory is at hand: in the steady state, a recorded launch takes the next of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import TypeVar

from warplens.errors import WarplensError
from warplens.launch.collected_run import CollectedRun
from warplens.launch.engine import Engine
from warplens.launch.native_launches import NativeLaunches, NativeTarget, Shelf
from warplens.launch.variant import Variants
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.record.capture import Dim3

T = TypeVar("T")

MOST_READY = 64
"""Launches that get their memory together."""
READY_BYTES = 16 << 20
"""The most memory that waits for launches of one variant."""


class ReadyLaunches:
    """Launches of one kernel, grid and context that have memory, which is zeroed, but were not made yet."""

    __slots__ = (
        "_context", "_grid", "_kernel", "_launches", "_lib", "_run", "_shelves", "_variant", "_variants",
    )  # fmt: skip

    def __init__(self, run: CollectedRun, variants: Variants, engine: Engine, launches: list[WovenLaunch]) -> None:
        first = launches[0]
        self._run, self._variants, self._variant = run, variants, first.variant
        self._kernel, self._grid = first.kernel, first.grid
        self._lib, self._context = engine.lib, engine.context
        self._launches = launches
        self._shelves: list[tuple[NativeLaunches, Shelf]] = []
        """Where launches are that may be made without Python, those to be made first at the beginning."""

    def is_of(self, kernel: WovenKernel, grid: Dim3) -> bool:
        """Whether these are launches of this kernel and grid."""
        return kernel is self._kernel and grid == self._grid

    @property
    def count(self) -> int:
        """How many launches there are of which nobody knows yet that they were made."""
        return len(self._launches) + sum(shelf.count for _, shelf in self._shelves)

    def add(self, launches: list[WovenLaunch]) -> None:
        """More launches, to be made after the others."""
        self._launches[:0] = launches[::-1]

    def shelve(self, native: NativeLaunches, kernel: WovenKernel, target: NativeTarget) -> None:
        """Let the launches be made without Python, if they are of this kernel and grid."""
        for one in [one for one in self._shelves if not one[1].count]:
            native.withdraw(one[1])
            with suppress(ValueError):  # another thread was quicker
                self._shelves.remove(one)
        if self.is_of(kernel, target.shape.grid) and (launches := list(_popped(self._launches))):
            shelf = native.offer(launches, target)
            if shelf is None:
                self._launches += launches[::-1]
            else:
                self._shelves.append((native, shelf))

    def unshelve(self) -> None:
        """Take back what was not made without Python."""
        for native, shelf in _popped(self._shelves):
            self._launches += native.withdraw(shelf)[::-1]

    def take(self, kernel: WovenKernel | None, grid: Dim3, stream: int) -> WovenLaunch | None:
        """A launch to make on `stream` now, counted as recorded. None where somebody else must decide: the launch is
        captured into a graph, goes to another context, or is not wanted; or nothing is left here."""
        if kernel is not self._kernel or grid != self._grid:
            return None
        try:
            launch = self._launches.pop()
        except IndexError:
            return None
        try:
            current = self._lib.runs_now(stream, self._context)
        except WarplensError:
            current = False
        if current and self._variants.records_next(self._variant):
            launch.stream = stream
            self._run.add(launch)
            return launch
        self._launches.append(launch)
        return None

    def next(self, kernel: WovenKernel, grid: Dim3, stream: int, context: int) -> WovenLaunch | None:
        """A launch to make on `stream`, which is counted already; None where there is none of this kernel, grid and
        context."""
        if not self.is_of(kernel, grid) or context != self._context:
            return None
        for launch in _popped(self._launches):
            launch.stream = stream
            return launch
        return None

    def give_back(self) -> None:
        """Give the memory of what was never launched back."""
        self.unshelve()
        for launch in _popped(self._launches):
            launch.cancel()


def _popped(values: list[T]) -> Iterator[T]:
    """Take values from the end of a list that other threads take values from, too."""
    while True:
        try:
            yield values.pop()
        except IndexError:
            return
