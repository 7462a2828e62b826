"""Launches that are timed beside others: what is put on the stream, in which context, and what is left alone."""

from __future__ import annotations

import itertools

import pytest

from tests.support.contexts import Contexts
from warplens.driver import libcuda
from warplens.errors import WarplensError
from warplens.launch.timing import TIMED_LAUNCHES, Timings
from warplens.launch.variant import Variant
from warplens.record.cost_keys import TIMED_PLAIN, TIMED_RECORDED


class Device(Contexts):
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


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Device:
    device = Device()
    monkeypatch.setattr(libcuda, "driver", lambda: device)
    return device


def run(timings: Timings, gpu: Device, variant: Variant, recorded: int, plain: int) -> None:
    for number in range(recorded + plain):
        timed = timings.begin(variant, 0, recorded=number < recorded)
        gpu.now += 3000 if number < recorded else 2000
        if timed is not None:
            timed.launched()


def test_launches_are_timed_behind_a_wait_in_their_own_context_and_the_ratio_has_its_counts(gpu: Device) -> None:
    timings, variant = Timings(), Variant("k", dict)
    for gpu.current in (1, 2):
        run(timings, gpu, variant, 3, 3)
    assert set(gpu.waits) == {1, 2}
    (found,) = timings.slowdowns().values()
    assert found == {"slowdown_measured": 1.5, TIMED_RECORDED: 6.0, TIMED_PLAIN: 6.0}
    assert not gpu.events


def test_a_busy_stream_needs_no_wait(gpu: Device) -> None:
    timings, variant = Timings(), Variant("k", dict)
    gpu.idle = False
    run(timings, gpu, variant, 3, 3)
    assert len(gpu.waits) == 1, "only the two events with nothing between them"
    assert timings.slowdowns()[id(variant)]["slowdown_measured"] == 1.5


def test_a_time_that_holds_the_hosts_way_does_not_count(gpu: Device) -> None:
    timings, variant = Timings(), Variant("k", dict)
    gpu.late = True
    run(timings, gpu, variant, 5, 5)
    assert timings.slowdowns() == {}
    assert not gpu.events


def test_no_more_launches_are_timed_than_asked_for(gpu: Device) -> None:
    timings, variant = Timings(), Variant("k", dict)
    run(timings, gpu, variant, 40, 40)
    found = timings.slowdowns()[id(variant)]
    assert (found[TIMED_RECORDED], found[TIMED_PLAIN]) == (TIMED_LAUNCHES, TIMED_LAUNCHES)


@pytest.mark.parametrize(("recorded", "plain"), [(5, 0), (0, 5), (2, 5), (5, 2)])
def test_too_few_launches_give_no_ratio(gpu: Device, recorded: int, plain: int) -> None:
    timings, variant = Timings(), Variant("k", dict)
    run(timings, gpu, variant, recorded, plain)
    assert timings.slowdowns() == {}


def test_a_launch_that_fails_is_for_the_program_to_find(gpu: Device) -> None:
    timings, variant = Timings(), Variant("k", dict)
    timed = timings.begin(variant, 0, recorded=True)
    gpu.failed = True
    assert timed is not None
    timed.launched()
    run(timings, gpu, variant, 3, 3)
    assert timings.slowdowns() == {}
