"""How a case is timed: the timer, the caches, and when enough was measured."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from warplens.errors import UsageError, did_you_mean

TIMERS = ("auto", "events", "graph", "clock")
CACHES = ("auto", "flush", "rotate", "warm")


@dataclass(frozen=True)
class Method:
    """How to measure.

    - `timer`: `events` (CUDA events around each call), `graph` (around each replay of a CUDA graph of the call),
      `clock` (the host's clock, on the CPU).
    - `cache`: `flush` (L2 is overwritten before each call), `rotate` (each call gets other inputs, together larger
      than L2), `warm` (the same inputs again and again).
    - `rel_dev`: stop when the 95 % interval of the median reaches no further than this share of it to either side.
    - `warmup`, `min_time`, `timeout` in seconds; `min_samples`, `max_samples` in calls.
    """

    timer: str = "auto"
    cache: str = "auto"
    rel_dev: float = 0.005
    warmup: float = 0.05
    min_time: float = 0.1
    min_samples: int = 30
    max_samples: int = 5000
    timeout: float = 10.0

    def __post_init__(self) -> None:
        for name, known in (("timer", TIMERS), ("cache", CACHES)):
            value = getattr(self, name)
            if value not in known:
                raise UsageError(f"{name} {value!r} is not known{did_you_mean(str(value), known)}")
        for name in ("rel_dev", "timeout"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}={getattr(self, name)!r} must be more than 0")
        for name in ("warmup", "min_time"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name}={getattr(self, name)!r} must not be negative")
        if not 2 <= self.min_samples <= self.max_samples:
            raise UsageError(
                f"min_samples={self.min_samples}, max_samples={self.max_samples}: expected 2 <= min <= max"
            )

    @classmethod
    def named(cls, **given: Any) -> Method:
        """The same, with a hint for a mistyped name."""
        known = [field.name for field in fields(cls)]
        for name in given:
            if name not in known:
                raise UsageError(f"no setting {name!r} of a measurement{did_you_mean(name, known)}")
        return cls(**given)


QUICK = {"rel_dev": 0.02, "warmup": 0.01, "min_time": 0.01, "min_samples": 10, "max_samples": 300, "timeout": 2.0}
"""For a first look: what `--quick` sets."""
