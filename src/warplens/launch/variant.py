"""Variants: launches of one kernel with the same specialisation and grid. Each has a quota of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from warplens.options import COLD, Options

GRIDS_APART = 64
"""Grids of one compiled kernel that are variants of their own; later ones share one variant."""


class Choice(Enum):
    """What to do with a launch."""

    RECORD = "record"
    TIME = "time"
    """Launch the plain kernel, and measure how long it takes."""
    PLAIN = "plain"


@dataclass
class Variant:
    """What is known of a variant while a session runs."""

    kernel: str
    describe: Callable[[], Mapping[str, Any]]
    """What tells it from other variants of the kernel, in names and values."""
    launches: int = 0
    recorded: int = 0
    timed: int = 0
    """Plain launches that were chosen to be timed."""
    closed: bool = False
    """Nothing more is to be recorded or timed: launch the plain kernel and ask nothing."""
    most_written: int | None = None
    """Slots that the busiest track of a launch wrote, once one has come home."""


@dataclass
class Variants:
    """The variants of one session, and the choice for each launch."""

    options: Options
    timed: int
    """Plain launches to time of each variant, once some were recorded."""
    wanted: Callable[[], bool] = field(default=lambda: True)
    """Whether launches are recorded at all now: inside the steps and ranges that were asked for."""
    _known: dict[tuple[str, Hashable, Hashable], Variant] = field(default_factory=dict)
    _grids: dict[tuple[str, Hashable], int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def of(self, kernel: str, code: Hashable, grid: Hashable, describe: Callable[[], Mapping[str, Any]]) -> Variant:
        """The variant of a launch: `code` stands for the compiled kernel and its launch options."""
        with self._lock:
            found = self._known.get((kernel, code, grid))
            if found is None:
                apart = self._grids.get((kernel, code), 0)
                key = (kernel, code, grid if apart < GRIDS_APART else None)
                self._grids[kernel, code] = apart + 1
                found = self._known.setdefault(key, Variant(kernel, describe))
                self._known[kernel, code, grid] = found
                found.closed = found.closed or not self.options.wants_kernel(kernel)
            return found

    def choose(self, variant: Variant) -> Choice:
        """Count a launch, and say what to do with it. Call it once per launch."""
        if variant.closed:
            return Choice.PLAIN
        options = self.options
        with self._lock:
            number, variant.launches = variant.launches, variant.launches + 1
            if not self.wanted():
                return Choice.PLAIN
            if self._is_full(variant):
                if variant.timed < self.timed:
                    variant.timed += 1
                    return Choice.TIME
                variant.closed = True
                return Choice.PLAIN
            number -= 0 if options.skip == COLD else int(options.skip)
            if number < 0 or number % options.every:
                return Choice.PLAIN
            variant.recorded += 1
            return Choice.RECORD

    def counts(self) -> dict[str, int]:
        """Launches of each kernel."""
        counts: dict[str, int] = {}
        for variant in {id(one): one for one in list(self._known.values())}.values():
            counts[variant.kernel] = counts.get(variant.kernel, 0) + variant.launches
        return counts

    def numbers(self) -> dict[int, int]:
        """By id of a recorded variant: its number among the recorded variants of its kernel with its description."""
        numbers: dict[int, int] = {}
        alike: dict[str, int] = {}
        for variant in list(self._known.values()):
            if variant.recorded and id(variant) not in numbers:
                text = f"{variant.kernel} {sorted(variant.describe().items())!r}"
                numbers[id(variant)] = alike[text] = alike.get(text, 0) + 1
        return numbers

    def _is_full(self, variant: Variant) -> bool:
        limit = self.options.launches
        # The cold launch is recorded in case no other follows, and left out if one does.
        return limit is not None and variant.recorded >= limit + (self.options.skip == COLD)
