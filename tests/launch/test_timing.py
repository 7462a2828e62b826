"""Launches that are timed beside others: what is put on the stream, in which context, and what is left alone."""

from __future__ import annotations

import pytest

from tests.support.event_clock import EventClock
from warplens.driver import libcuda
from warplens.launch.timing import TIMED_LAUNCHES, Timings
from warplens.launch.variant import Variant
from warplens.record.cost_keys import TIMED_PLAIN, TIMED_RECORDED


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> EventClock:
    device = EventClock()
    monkeypatch.setattr(libcuda, "driver", lambda: device)
    return device


def run(timings: Timings, gpu: EventClock, variant: Variant, recorded: int, plain: int) -> None:
    for number in range(recorded + plain):
        timed = timings.begin(variant, 0, recorded=number < recorded)
        gpu.now += 3000 if number < recorded else 2000
        if timed is not None:
            timed.launched()


def test_launches_are_timed_behind_a_wait_in_their_own_context_and_the_ratio_has_its_counts(gpu: EventClock) -> None:
    timings, variant = Timings(), Variant("k", dict)
    for gpu.current in (1, 2):
        run(timings, gpu, variant, 3, 3)
    assert set(gpu.waits) == {1, 2}
    (found,) = timings.slowdowns().values()
    assert found == {"slowdown_measured": 1.5, TIMED_RECORDED: 6.0, TIMED_PLAIN: 6.0}
    assert not gpu.events


def test_a_busy_stream_needs_no_wait(gpu: EventClock) -> None:
    timings, variant = Timings(), Variant("k", dict)
    gpu.idle = False
    run(timings, gpu, variant, 3, 3)
    assert len(gpu.waits) == 1, "only the two events with nothing between them"
    assert timings.slowdowns()[id(variant)]["slowdown_measured"] == 1.5


def test_a_time_that_holds_the_hosts_way_does_not_count(gpu: EventClock) -> None:
    timings, variant = Timings(), Variant("k", dict)
    gpu.late = True
    run(timings, gpu, variant, 5, 5)
    assert timings.slowdowns() == {}
    assert not gpu.events


def test_no_more_launches_are_timed_than_asked_for(gpu: EventClock) -> None:
    timings, variant = Timings(), Variant("k", dict)
    run(timings, gpu, variant, 40, 40)
    found = timings.slowdowns()[id(variant)]
    assert (found[TIMED_RECORDED], found[TIMED_PLAIN]) == (TIMED_LAUNCHES, TIMED_LAUNCHES)


@pytest.mark.parametrize(("recorded", "plain"), [(5, 0), (0, 5), (2, 5), (5, 2)])
def test_too_few_launches_give_no_ratio(gpu: EventClock, recorded: int, plain: int) -> None:
    timings, variant = Timings(), Variant("k", dict)
    run(timings, gpu, variant, recorded, plain)
    assert timings.slowdowns() == {}


def test_a_launch_that_fails_is_for_the_program_to_find(gpu: EventClock) -> None:
    timings, variant = Timings(), Variant("k", dict)
    timed = timings.begin(variant, 0, recorded=True)
    gpu.failed = True
    assert timed is not None
    timed.launched()
    run(timings, gpu, variant, 3, 3)
    assert timings.slowdowns() == {}
