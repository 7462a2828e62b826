"""Measure a kernel's slowdown by CUPTI while a profile runs, from launches that are recorded and plain in turn.

The profile's own measurement compares the quickest launches by events. This one is independent of it: once the profile
has decided about a kernel and used its quota up, every other launch is recorded, with the weaving that was kept. The
slowdown is the ratio of the medians of CUPTI's durations.
"""

from __future__ import annotations

import json
import statistics
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

from warplens.launch.variant import Choice, Variant, Variants
from warplens.session.session import Session

FEWEST = 5
"""Launches of each kind that make a slowdown."""


@dataclass
class _Made:
    """A launch that was made while launches alternated."""

    variant: Variant
    recorded: bool


@dataclass(frozen=True)
class CuptiSlowdown:
    """Median durations of plain and recorded launches, and how many there were."""

    plain_us: float
    recorded_us: float
    plain: int
    recorded: int

    @property
    def ratio(self) -> float:
        return self.recorded_us / self.plain_us


def key_of(kernel: str, description: Any) -> str:
    """What a variant is found by in a trace."""
    return f"{kernel} {json.dumps(description, sort_keys=True, default=str)}"


@dataclass
class AlternatingLaunches:
    """Watches what a profile decides about its variants; with `alternating`, decides itself."""

    made: list[_Made] = field(default_factory=list)
    alternating: bool = False
    _variants: dict[int, Variant] = field(default_factory=dict)
    _turns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Stand between the profile and its variants in this block."""
        choose, prepare = Variants.choose, Session._prepare

        def chosen(variants: Variants, variant: Variant) -> Choice:
            with self._lock:
                return self._choose(choose, variants, variant)

        def prepared(session: Session, variant: Variant, woven: Callable[[], Any]) -> Any:
            found = prepare(session, variant, woven)
            if found is None and self.alternating and self.made:
                self.made[-1].recorded = False  # the plain kernel runs instead
            return found

        with mock.patch.object(Variants, "choose", chosen), mock.patch.object(Session, "_prepare", prepared):
            yield

    def _choose(self, choose: Callable[[Variants, Variant], Choice], variants: Variants, variant: Variant) -> Choice:
        if not self.alternating:
            closed = variant.closed
            found = choose(variants, variant)
            if not closed:
                self._variants[id(variant)] = variant
                if variant.closed and variant.recorded:  # its quota is used up: it must be asked for again
                    variant.closed = False
            return found
        if id(variant) not in self._variants or not variant.settled or not variant.recorded:
            return Choice.PLAIN
        variant.launches += 1
        self._turns[id(variant)] += 1
        recorded = self._turns[id(variant)] % 2 == 0
        self.made.append(_Made(variant, recorded))
        return Choice.RECORD if recorded else Choice.PLAIN

    def are_decided(self, wanted: int) -> bool:
        """Whether the profile has decided about all variants, and recorded and timed each as often as it will."""
        known = [one for one in self._variants.values() if not one.closed]
        return bool(known) and all(one.settled and min(one.recorded, one.timed) >= wanted for one in known)

    def measure(self, run: Callable[[], Any], calls: int) -> dict[str, CuptiSlowdown]:
        """Call a program while launches alternate; the slowdown of each variant, by `key_of`."""
        import torch

        self.alternating = True
        try:
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
                for _ in range(calls):
                    run()
                torch.cuda.synchronize()
        finally:
            self.alternating = False
        events = sorted(profiler.events(), key=lambda event: event.time_range.start)
        return self.slowdowns((event.name, event.device_time) for event in events)

    def slowdowns(self, durations: Iterable[tuple[str, float]]) -> dict[str, CuptiSlowdown]:
        """The slowdowns from names and durations of all launches in µs, in their order on the device. Kernels of which
        CUPTI saw more or fewer launches than were made are left out."""
        seen: dict[str, list[float]] = defaultdict(list)
        for name, lasted in durations:
            seen[name].append(lasted)
        launches: dict[str, list[_Made]] = defaultdict(list)
        for one in self.made:
            launches[one.variant.kernel].append(one)
        found = {}
        for kernel, mine in launches.items():
            if len(mine) != len(seen[kernel]):
                continue
            for variant in {id(one.variant): one.variant for one in mine}.values():
                pairs = [(one, t) for one, t in zip(mine, seen[kernel], strict=True) if one.variant is variant]
                slowdown = _slowdown(
                    [t for one, t in pairs if not one.recorded], [t for one, t in pairs if one.recorded]
                )
                if slowdown is not None:
                    found[key_of(kernel, dict(variant.describe()))] = slowdown
        return found


def _slowdown(plain: Sequence[float], recorded: Sequence[float]) -> CuptiSlowdown | None:
    # The first of each kind may load code.
    plain, recorded = plain[1:], recorded[1:]
    if min(len(plain), len(recorded)) < FEWEST:
        return None
    return CuptiSlowdown(statistics.median(plain), statistics.median(recorded), len(plain), len(recorded))
