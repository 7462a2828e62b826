"""Host time that warplens adds to a launch, without a GPU: the driver answers at once and does nothing.

PYTHONPATH=src python -m benchmarks.host_launch
"""

from __future__ import annotations

import itertools
import json
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from warplens.driver import libcuda
from warplens.frontends.triton.launch_hook import LaunchHook, RecordingLauncher
from warplens.launch.variant import Variant
from warplens.launch.woven import WovenKernel
from warplens.options import Options
from warplens.record.capture import Device
from warplens.session import Session
from warplens.weave.weaving import Selection

LAUNCHES, REPEATS = 2000, 7


class IdleDriver:
    """A driver that does nothing: memory is numbers, events are reached when they are marked."""

    def __init__(self) -> None:
        self._handles = itertools.count(1)
        self._addresses = itertools.count(1 << 40, 1 << 40)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return lambda *given: 0

    def device(self) -> Device:
        return Device("idle", sm_count=132)

    def memory(self) -> tuple[int, int]:
        return 1 << 36, 1 << 37

    def allocate(self, size: int) -> int:
        return next(self._addresses)

    def stream(self) -> int:
        return next(self._handles)

    def new_event(self) -> int:
        return next(self._handles)

    def context(self) -> int:
        return 1

    def is_capturing(self, stream: int) -> bool:
        return False

    def reached(self, event: int) -> bool:
        return True

    def inside(self, context: int) -> Any:
        return nullcontext()


class Twin:
    """A woven kernel whose launch does nothing."""

    function, packed_metadata = 1, ()

    def run(self, *given: Any) -> None: ...


KERNEL = WovenKernel(
    name="k", warps=4, regions={1: "load"}, locations={}, slack=2, full="stop", store="late", select=Selection()
)


class Hook(LaunchHook):
    """A hook whose kernel has a twin already."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, None)  # type: ignore[arg-type]
        self.running = True

    def variant(self, kernel: Any, grid: Any) -> Variant:
        return self.session.variant("k", 1, grid)

    def twin(self, kernel: Any) -> tuple[Any, WovenKernel] | None:
        return Twin(), KERNEL


def plain(*given: Any) -> None: ...


def microseconds(launch: Callable[..., Any]) -> float:
    """The median over repeats of the time per launch; a launch has as many arguments as one of Triton's."""
    rest = ((), None, None, None, *range(12))
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        for _ in range(LAUNCHES):
            launch(132, 1, 1, 7, 1, *rest)
        times.append((time.perf_counter() - start) / LAUNCHES * 1e6)
    return statistics.median(times)


def measure() -> dict[str, float]:
    """Microseconds per launch: nothing, a launch that warplens is done with, and a recorded one."""
    idle, before = IdleDriver(), libcuda.driver
    libcuda.driver = lambda: idle  # type: ignore[assignment]
    try:
        found = {"plain_us": microseconds(plain)}
        session = Session(Options(launches=1))
        closed = RecordingLauncher(Hook(session), None, plain)
        for _ in range(100):
            closed(132, 1, 1, 7, 1, (), None)
        found["closed_us"] = microseconds(closed)
        session = Session(Options(records_per_warp=16))
        recorded = RecordingLauncher(Hook(session), None, plain)
        recorded(132, 1, 1, 7, 1, (), None)
        session.buffers.engine().collector._closed = True  # bringing records home is not measured here
        found["recorded_us"] = microseconds(recorded)
        return found
    finally:
        libcuda.driver = before


if __name__ == "__main__":
    print(json.dumps(measure()))
