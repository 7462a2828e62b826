"""The log of collectives: the same calls are kept on all ranks, in bounded memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from warplens.launch.clock_stamps import ClockStamps
from warplens.session.collective_log import CollectiveLog


def test_calls_are_numbered_by_group() -> None:
    log = CollectiveLog()
    for group in ("a", "b", "a"):
        call = log.begin(group, "all_reduce", "all", 10)
        assert call is not None
        call.end_ns = 20
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
        if call is not None:
            call.stamps, call.begin_slot, call.end_slot = cast(ClockStamps, stamps), 2 * at + 1, 2 * at + 2
    assert sorted(given) == [3, 4, 7, 8]
    assert [(call.device_begin_ns, call.device_end_ns) for call in log.noted()] == [(100, 200), (500, 600), (900, 1000)]
