"""The log of collectives: the same calls are kept on all ranks, in bounded memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from warplens.launch.clock_stamps import ClockStamps
from warplens.session.collective_log import CollectiveLog


def test_calls_are_numbered_by_group() -> None:
    log = CollectiveLog()
    for group in ("a", "b", "a"):
        log.begin(group, "all_reduce", "all", 10).end_ns = 20
    noted = log.noted()
    assert [(call.group, call.number, call.end_ns) for call in noted] == [("a", 0, 20), ("b", 0, 20), ("a", 1, 20)]


def test_of_many_calls_all_ranks_keep_the_same() -> None:
    logs = [CollectiveLog(most=16) for _ in range(2)]
    for log, count in zip(logs, (1000, 900), strict=True):
        for at in range(count):
            log.begin("a", "barrier", "all", at)
    kept = [{call.number for call in log.noted()} for log in logs]
    assert all(8 <= len(numbers) <= 16 for numbers in kept)
    assert len(logs[0]) == 1000
    assert kept[1] <= kept[0], "a rank that was slower has the same calls"


def test_stamps_of_calls_that_are_not_kept_are_given_back() -> None:
    given: list[int] = []
    stamps: Any = SimpleNamespace(give=given.append, read=lambda slot: 100 * slot)
    log = CollectiveLog(most=4)
    for at in range(5):
        call = log.begin("a", "all_reduce", "all", at)
        if call.kept:
            call.stamps, call.begin_slot, call.end_slot = cast(ClockStamps, stamps), 2 * at + 1, 2 * at + 2
    assert sorted(given) == [3, 4, 7, 8]
    assert [(call.device_begin_ns, call.device_end_ns) for call in log.noted()] == [(100, 200), (500, 600), (900, 1000)]


def test_a_position_is_the_newest_call_that_was_entered_and_says_if_the_rank_is_in_it() -> None:
    log = CollectiveLog(most=4)
    for at in range(9):
        log.begin("a", "all_reduce", "all", at).returned = True
    log.begin("b", "barrier", "all", 100)
    inside, left = log.positions()
    assert (inside.group, inside.number, inside.inside, inside.entered_ns) == ("b", 0, True, 100)
    assert (left.group, left.number, left.inside) == ("a", 8, False), "also of calls that are not kept"


def test_on_a_device_a_rank_is_where_its_stream_is() -> None:
    made = {1: 50, 2: 60, 3: 70}
    stamps = cast(ClockStamps, SimpleNamespace(read=lambda slot: made.get(slot, 0)))
    log = CollectiveLog()
    for at in range(3):
        call = log.begin("a", "all_reduce", "all", at)
        call.stamps, call.begin_slot, call.end_slot, call.returned = stamps, 2 * at + 1, 2 * at + 2, True
    (position,) = log.positions()
    assert (position.number, position.entered_ns, position.on_device, position.inside) == (1, 70, True, True)
    made[4] = 80
    assert not log.positions()[0].inside
