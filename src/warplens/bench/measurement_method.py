"""How a case is timed: the timer, the state of the caches, and when to stop."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any

from warplens.errors import UsageError, check_name, did_you_mean

TIMERS = ("auto", "events", "graph", "clock")
CACHES = ("auto", "flush", "rotate", "warm")


@dataclass(frozen=True)
class Method:
    """Settings of a measurement.

    - `timer`: `events` (CUDA events around each call), `graph` (around each replay of a CUDA graph of the call) or
      `clock` (the host clock, for the CPU).
    - `cache`: `flush` (overwrite L2 before each call), `rotate` (use different inputs in each call, together larger
      than L2) or `warm` (reuse the same inputs).
    - `rel_dev`: stop when the 95 % interval of the median is within this share of the median on both sides.
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
                raise UsageError(f"unknown {name} {value!r}{did_you_mean(str(value), known)}")
        for name in ("rel_dev", "timeout"):
            if not getattr(self, name) > 0:
                raise UsageError(f"{name}={getattr(self, name)!r}: must be greater than 0")
        for name in ("warmup", "min_time"):
            if not getattr(self, name) >= 0:
                raise UsageError(f"{name}={getattr(self, name)!r}: must not be negative")
        if not 2 <= self.min_samples <= self.max_samples:
            raise UsageError(
                f"min_samples={self.min_samples}, max_samples={self.max_samples}: expected 2 <= min <= max"
            )

    @classmethod
    def named(cls, **given: Any) -> Method:
        """Create a method; suggest a correction for a misspelt setting."""
        known = [field.name for field in fields(cls)]
        for name in given:
            check_name(f"unknown measurement setting {name!r}", name, known)
        return cls(**given)


QUICK = {"rel_dev": 0.02, "warmup": 0.01, "min_time": 0.01, "min_samples": 10, "max_samples": 300, "timeout": 2.0}
"""The settings of `--quick`."""
