"""When launches come home, and in which thread."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pytest

from tests.support.until import until
from warplens.launch.collector import Collector
from warplens.launch.short_turns import TURN_S, short_turns
from warplens.launch.timed_stretches import timed_stretch


class Flight:
    def __init__(self, over: bool = True) -> None:
        self.is_over, self.landed_in = over, ""

    def over(self) -> bool:
        return self.is_over

    def land(self, flights: Sequence[Flight]) -> None:
        for one in flights:
            one.landed_in = threading.current_thread().name


def test_finished_launches_land_in_order_while_the_program_pauses() -> None:
    collector = Collector(crowded=lambda: False)
    flights = [Flight(), Flight(over=False), Flight()]
    for one in flights:
        collector.add(one)
    assert until(lambda: flights[0].landed_in == "warplens-collector")
    time.sleep(0.05)
    assert not flights[2].landed_in, "the second is not over, and the order is kept"
    flights[1].is_over = True
    assert until(lambda: flights[2].landed_in == "warplens-collector")
    collector.close()


def test_the_end_waits_for_all_in_the_thread_that_asks() -> None:
    collector = Collector(crowded=lambda: False)
    flights = [Flight(over=False) for _ in range(3)]
    for one in flights:
        collector.add(one)
    while collector.land_oldest():
        pass
    assert {one.landed_in for one in flights} == {threading.current_thread().name}
    assert not collector.land_oldest()
    collector.close()


def test_a_collector_that_never_saw_a_launch_has_no_thread() -> None:
    before = threading.active_count()
    collector = Collector(crowded=lambda: True)
    assert not collector.land_oldest()
    collector.close()
    assert threading.active_count() == before


def test_the_thread_lands_launches_in_relaxed_mode() -> None:
    """Else what it asks of the driver would break a capture that another thread has under way."""
    inside: list[str] = []

    @contextmanager
    def relaxed() -> Iterator[None]:
        inside.append(threading.current_thread().name)
        yield
        inside.clear()

    class Seen(Flight):
        def land(self, flights: Sequence[Flight]) -> None:
            self.landed_in = ",".join(inside)

    collector = Collector(lambda: False, relaxed)
    one = Seen()
    collector.add(one)
    assert until(lambda: one.landed_in)
    assert one.landed_in == "warplens-collector"
    collector.close()
    assert not inside


def test_the_thread_does_other_work_when_nothing_is_left_to_land() -> None:
    calls: list[bool] = []

    def idle() -> bool:
        calls.append(flight.landed_in != "")
        return len(calls) < 4

    collector, flight = Collector(crowded=lambda: False, idle=idle), Flight()
    collector.add(flight)
    assert until(lambda: len(calls) == 4)
    time.sleep(0.03)
    assert calls == [True] * 4, "a launch is brought home first, and a call without work is the last one"
    collector.close()


class Busy:
    """Time that passes only where the thread sleeps. The program makes 2,000 launches per second in the first 0.2 s."""

    def __init__(self, launch: Callable[[], None]) -> None:
        self.now, self.launch, self.pauses = 0.0, launch, 0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        before, self.now, self.pauses = self.now, self.now + seconds, self.pauses + 1
        if self.now < 0.2:
            for _ in range(int(self.now * 2000) - int(before * 2000)):
                self.launch()


def test_the_thread_stays_away_while_launches_come_thick_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[float] = []
    collector = Collector(crowded=lambda: False, idle=lambda: bool(calls.append(clock.now)))
    flights: list[Landed] = []

    class Landed(Flight):
        def land(self, flights: Sequence[Flight]) -> None:
            for one in flights:
                one.landed_at = clock.now  # type: ignore[attr-defined]

    def launch() -> None:
        flights.append(Landed())
        collector.add(flights[-1])

    clock = Busy(launch)
    monkeypatch.setattr("warplens.launch.collector.time", clock)
    launch()
    assert until(lambda: bool(calls))
    collector.close()
    assert len(flights) > 300
    assert min(one.landed_at for one in flights) >= 0.2  # type: ignore[attr-defined]
    assert calls[0] >= 0.2


def test_the_thread_stays_away_while_other_launches_come_thick_and_fast(monkeypatch: pytest.MonkeyPatch) -> None:
    """Launches of kernels that are done with take Python's lock, too. The thread looks after them rarely."""
    launches: list[int] = []
    landed: list[float] = []

    class Landed(Flight):
        def land(self, flights: Sequence[Flight]) -> None:
            landed.append(clock.now)

    collector = Collector(crowded=lambda: False, launched=lambda: len(launches))
    clock = Busy(lambda: launches.append(1))
    monkeypatch.setattr("warplens.launch.collector.time", clock)
    collector.add(Landed())
    assert until(lambda: bool(landed))
    collector.close()
    assert landed[0] >= 0.2
    assert clock.pauses < 10


def test_the_thread_stays_away_while_the_program_times_its_launches() -> None:
    done: list[str] = []
    collector = Collector(crowded=lambda: False, idle=lambda: len(done) < 3 and not done.append("work"))  # type: ignore[func-returns-value]
    flights = [Flight(), Flight(over=False)]
    with timed_stretch(), timed_stretch():
        collector.add(flights[0])
        collector.add(flights[1])
        time.sleep(0.1)
        assert not flights[0].landed_in
        assert not done
    assert until(lambda: flights[0].landed_in == "warplens-collector")
    assert until(lambda: len(done) == 3)
    collector.close()


def test_the_thread_gives_python_s_lock_back_soon_while_it_works() -> None:
    intervals: list[float] = []
    before = sys.getswitchinterval()
    collector = Collector(crowded=lambda: False, idle=lambda: bool(intervals.append(sys.getswitchinterval())))
    collector.add(Flight())
    assert until(lambda: bool(intervals))
    collector.close()
    assert intervals[0] == pytest.approx(TURN_S, rel=0.05)
    assert sys.getswitchinterval() == before


def test_short_turns_nest_and_leave_what_the_program_sets() -> None:
    before = sys.getswitchinterval()
    try:
        with short_turns():
            with short_turns():
                pass
            assert sys.getswitchinterval() == pytest.approx(TURN_S, rel=0.05)
            sys.setswitchinterval(0.002)
        assert sys.getswitchinterval() == pytest.approx(0.002)
    finally:
        sys.setswitchinterval(before)
