"""The clocks of SMs while a kernel runs: 32 bits of a record's clock become 64, at a rate that is learned."""

from __future__ import annotations

import numpy as np
import pytest

from warplens.launch.running_clocks import RunningClocks
from warplens.record.layout import HEADER

START_NS = 1_700_000_000_000_000_000
START_CLOCK = 123 << 40
SECOND = 10**9


def headers(tracks: int = 2) -> np.ndarray:
    made = np.zeros(tracks, HEADER)
    made["start_clock"], made["start_ns"], made["sm"] = START_CLOCK, START_NS, np.arange(tracks)
    return made


def low(clock: int) -> int:
    return clock & 0xFFFFFFFF


@pytest.mark.parametrize("rate", [1.1, 1.98])
def test_the_rate_is_learned_whatever_the_nominal_one(rate: float) -> None:
    clocks = RunningClocks(2, 1755.0)
    for step in range(1, 60):
        lived = step * SECOND // 2
        clock = START_CLOCK + int(lived * rate)
        newest, now = np.full(2, low(clock)), START_NS + lived
        latest, at_now = clocks.update(headers(), newest, np.full(2, 100), now)
        assert latest.tolist() == [clock, clock]
        assert np.abs(at_now - clock).max() < 1000
    assert clocks.rate == pytest.approx(rate)


def test_a_rate_that_was_misjudged_at_first_is_corrected() -> None:
    """The kernel was only scheduled a while after its start was read, so its first records seem late."""
    clocks = RunningClocks(2, 1000.0)
    newest = np.full(2, low(START_CLOCK + SECOND // 4))
    clocks.update(headers(), newest, np.full(2, 9), START_NS + SECOND // 2)
    assert clocks.rate == pytest.approx(0.5)
    for step in range(2, 30):
        clock = START_CLOCK + step * SECOND // 2
        latest, _ = clocks.update(headers(), np.full(2, low(clock)), np.full(2, 9), START_NS + step * SECOND // 2)
        assert latest.tolist() == [clock, clock]
    assert clocks.rate == pytest.approx(1.0)


def test_a_warp_that_records_nothing_keeps_its_last_clock_and_others_go_on() -> None:
    clocks = RunningClocks(2, 1000.0)
    for step in range(1, 30):
        clock = START_CLOCK + step * SECOND // 2
        newest, added = np.array([low(clock), low(START_CLOCK + SECOND // 2)]), np.array([9, 9 if step == 1 else 0])
        latest, now = clocks.update(headers(), newest, added, START_NS + step * SECOND // 2)
    assert latest.tolist() == [START_CLOCK + 29 * SECOND // 2, START_CLOCK + SECOND // 2]
    assert np.abs(now - latest[0]).max() < 1000, "the clock of its SM goes on as well"


def test_rare_records_do_not_slow_the_clock_down() -> None:
    clocks = RunningClocks(2, 1000.0)
    clocks.update(headers(), np.full(2, low(START_CLOCK + 1000)), np.full(2, 2), START_NS + SECOND)
    assert clocks.rate == 1.0
