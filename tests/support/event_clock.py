"""A CUDA driver whose events stand on a clock that the test moves."""

from __future__ import annotations

import itertools

from tests.support.contexts import Contexts
from warplens.errors import WarplensError


class EventClock(Contexts):
    """Events on a clock that `launch` moves, and what was loaded and run in which context."""

    def __init__(self) -> None:
        self.now, self.handles = 0.0, itertools.count(1)
        self.events: dict[int, float] = {}
        self.functions: dict[int, int] = {}
        self.waits: list[int] = []
        self.failed, self.idle, self.late = False, True, False

    def load(self, image: bytes) -> int:
        return next(self.handles)

    def function(self, module: int, name: str) -> int:
        self.functions[module] = self.current
        return module

    def launch(self, function: int, *shape: object) -> None:
        if self.functions[function] != self.current:
            raise WarplensError("cuLaunchKernel failed: invalid resource handle (CUDA error 400)")
        self.waits.append(self.current)

    def event(self, stream: int) -> int:
        if self.failed:
            raise WarplensError("cuEventCreate failed: an illegal memory access was encountered (CUDA error 700)")
        handle = next(self.handles)
        self.events[handle] = self.now
        return handle

    def elapsed_ns(self, first: int, second: int) -> float:
        return self.events.pop(second) - self.events.pop(first)

    def destroy_event(self, event: int) -> None:
        self.events.pop(event, None)

    def is_idle(self, stream: int) -> bool:
        return self.idle

    def reached(self, event: int) -> bool:
        return self.late
