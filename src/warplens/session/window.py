"""When launches are recorded: between two steps of the program, or inside named ranges."""

from __future__ import annotations

import re
import threading
from dataclasses import dataclass

from warplens.options import Options

_step = 0
_ranges = threading.local()


def step() -> int:
    """Say that a step of the program (a training iteration, a request) is over. Return the number of the next one."""
    global _step
    _step += 1
    return _step


def names() -> list[str]:
    """The ranges that this thread is in, outermost first."""
    if not hasattr(_ranges, "names"):
        _ranges.names = []
    found: list[str] = _ranges.names
    return found


@dataclass(frozen=True)
class Window:
    """The steps and ranges that a session asks for."""

    within: re.Pattern[str] | None = None
    first: int | None = None
    last: int | None = None

    @staticmethod
    def of(options: Options) -> Window:
        pattern = None if options.within is None else re.compile(options.within)
        return Window(pattern, options.from_step, options.to_step)

    @property
    def is_always_open(self) -> bool:
        """Whether every launch is to be recorded, so that none need ask."""
        return self == Window()

    def open(self) -> bool:
        """Return whether a launch that this thread makes now is to be recorded."""
        if (self.first is not None and _step < self.first) or (self.last is not None and _step > self.last):
            return False
        return self.within is None or any(self.within.search(name) for name in names())
