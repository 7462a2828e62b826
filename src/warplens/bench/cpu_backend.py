"""Run cases on the CPU, timed with the host clock."""

from __future__ import annotations

import copy
import platform
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from warplens.bench.backend import Call
from warplens.bench.measurement_method import Method
from warplens.bench.throttle import Reading
from warplens.errors import UsageError

_CACHE_BYTES = 64 << 20
"""Bytes to write to flush the caches: more than the last-level cache of most CPUs."""


class CpuBackend:
    """The CPU; it runs functions that return when they are done. Tests pass their own clock."""

    name = "cpu"

    def __init__(self, nanoseconds: Callable[[], int] = time.perf_counter_ns) -> None:
        self._now = nanoseconds
        self._scratch: np.ndarray[Any, Any] | None = None
        self.device = platform.processor() or platform.machine() or "cpu"

    def resolve(self, method: Method) -> Method:
        if method.timer not in ("auto", "clock"):
            raise UsageError(f"timer {method.timer!r} needs a GPU; use 'clock' on the CPU")
        return replace(method, timer="clock", cache="warm" if method.cache == "auto" else method.cache)

    def facts(self) -> dict[str, Any]:
        return {"device": self.device}

    def seconds(self) -> float:
        return self._now() / 1e9

    def input_sets(self, arguments: tuple[Any, ...]) -> int:
        size = sum(int(getattr(one, "nbytes", 0)) for one in arguments)
        return min(max(-(-_CACHE_BYTES // size), 2), 64) if size else 1

    def copy(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        return copy.deepcopy(arguments)

    def prepare(self, calls: Sequence[Call], method: Method) -> Sequence[Call]:
        return calls

    def sample(self, calls: Sequence[Call], method: Method) -> list[float]:
        out = []
        for number, call in enumerate(calls):
            if method.cache == "flush":
                if self._scratch is None:
                    self._scratch = np.empty(_CACHE_BYTES, np.uint8)
                self._scratch.fill(number & 1)
            begin = self._now()
            call()
            out.append(float(self._now() - begin))
        return out

    def memory(self) -> int | None:
        return None

    def peak(self) -> int | None:
        return None

    def clocks(self) -> list[Reading]:
        return []

    def wide(self, result: Any) -> Any:
        return np.asarray(result, np.float64)

    def recover(self) -> str:
        return ""
