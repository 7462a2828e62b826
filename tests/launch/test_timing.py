"""Launches that are timed beside others: what is put on the stream, in which context, and what is left alone."""

from __future__ import annotations

import itertools

import pytest

from tests.support.contexts import Contexts
from warplens.errors import WarplensError
from warplens.launch import timing
from warplens.launch.timing import Timings
from warplens.record.capture import Launch
from warplens.record.cost_keys import SLOWDOWN_MEASURED


class Device(Contexts):
    """Events on a clock that `launch` moves, and what was loaded and run in which context."""

    def __init__(self) -> None:
        self.now, self.handles = 0.0, itertools.count(1)
        self.events: dict[int, float] = {}
        self.functions: dict[int, int] = {}
        self.waits: list[int] = []
        self.waited_for: set[int] = set()
        self.failed = False

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

    def synchronize(self) -> None:
        self.waited_for.add(self.current)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(timing, "driver", lambda: device)
    return device


def run(timings: Timings, gpu: Device, marked: int, plain: int) -> None:
    for number in range(marked + plain):
        timings.begin("k", (), 0, marked=number < marked)
        gpu.now += 3000 if number < marked else 2000
        timings.end()


def ratio(timings: Timings) -> float | None:
    return timings.with_slowdown(Launch("k", (1, 1, 1), (32, 1, 1), {}, 0, b"")).cost.get(SLOWDOWN_MEASURED)


def test_launches_on_each_gpu_are_timed_behind_a_wait_of_its_own(gpu: Device) -> None:
    timings = Timings(launches=3)
    for gpu.current in (1, 2):
        run(timings, gpu, 3, 3)
    assert set(gpu.waits) == {1, 2}
    assert ratio(timings) == 1.5
    assert gpu.waited_for == {1, 2}, "events of a GPU that still runs cannot be read"
    assert not gpu.events


@pytest.mark.parametrize("launches", [None, 1, 2])
def test_nothing_waits_where_nothing_can_be_compared(gpu: Device, launches: int | None) -> None:
    timings = Timings(launches)
    run(timings, gpu, 5, 0 if launches is None else 5)
    assert not gpu.waits
    assert not gpu.events
    assert ratio(timings) is None


def test_a_launch_that_fails_is_for_the_program_to_find(gpu: Device) -> None:
    timings = Timings(launches=3)
    timings.begin("k", (), 0, marked=True)
    gpu.failed = True
    timings.end()
    run(timings, gpu, 3, 3)
    assert ratio(timings) is None
