"""When launches come home, and in which thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from warplens.launch.collector import Collector


class Flight:
    def __init__(self, over: bool = True) -> None:
        self.is_over, self.landed_in = over, ""

    def over(self) -> bool:
        return self.is_over

    def land(self, flights: Sequence[Flight]) -> None:
        for one in flights:
            one.landed_in = threading.current_thread().name


def until(condition: object, seconds: float = 10.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():  # type: ignore[operator]
            return True
        time.sleep(0.001)
    return False


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


def test_the_thread_stays_away_while_launches_come_thick_and_fast() -> None:
    calls: list[int] = []
    collector, flights = Collector(crowded=lambda: False, idle=lambda: bool(calls.append(1))), []
    end = time.monotonic() + 0.2
    while time.monotonic() < end:
        for _ in range(20):
            flights.append(Flight())
            collector.add(flights[-1])
        time.sleep(0.001)
    assert not any(one.landed_in for one in flights)
    assert not calls
    assert until(lambda: all(one.landed_in for one in flights) and bool(calls))
    collector.close()
