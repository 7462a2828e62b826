"""Launches whose memory is at hand: in the steady state, a recorded launch takes the next of them."""

from __future__ import annotations

from warplens.errors import WarplensError
from warplens.launch.collected_run import CollectedRun
from warplens.launch.engine import Engine
from warplens.launch.native_launches import NativeLaunches, NativeTarget, Shelf
from warplens.launch.variant import Variants
from warplens.launch.woven import WovenKernel, WovenLaunch
from warplens.record.capture import Dim3

MOST_READY = 64
"""Launches that get their memory together."""
READY_BYTES = 16 << 20
"""The most memory that waits for launches of one variant."""


class ReadyLaunches:
    """Launches of one kernel, grid and context that have memory, which is zeroed, but were not made yet."""

    __slots__ = (
        "_context", "_grid", "_kernel", "_launches", "_lib", "_native", "_run", "_shelf", "_variant", "_variants",
    )  # fmt: skip

    def __init__(self, run: CollectedRun, variants: Variants, engine: Engine, launches: list[WovenLaunch]) -> None:
        first = launches[0]
        self._run, self._variants, self._variant = run, variants, first.variant
        self._kernel, self._grid = first.kernel, first.grid
        self._lib, self._context = engine.lib, engine.context
        self._launches = launches
        self._native: NativeLaunches | None = None
        self._shelf: Shelf | None = None
        """Where the launches are while they may be made without Python."""

    def shelve(self, native: NativeLaunches, kernel: WovenKernel, target: NativeTarget) -> None:
        """Let the launches be made without Python, if they are of this kernel and grid."""
        if self._launches and kernel is self._kernel and target.shape.grid == self._grid:
            launches, self._launches = self._launches[::-1], []
            self._native, self._shelf = native, native.offer(launches, target)
            if self._shelf is None:
                self._launches = launches[::-1]

    def unshelve(self) -> None:
        """Take back what was not made without Python."""
        shelf, self._shelf = self._shelf, None
        if shelf is not None and self._native is not None:
            self._launches += self._native.withdraw(shelf)[::-1]

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

    def give_back(self) -> None:
        """Give the memory of what was never launched back."""
        self.unshelve()
        while self._launches:
            self._launches.pop().cancel()
