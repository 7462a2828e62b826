"""Times between anchors: a trace says how far the clock may have gone astray where nothing ties it to the timer."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.support.wave_capture import CYCLES_PER_NS, Block, launch_of, waves
from warplens.analyse.trace_quality import clock_line, warnings_of
from warplens.decode import decode
from warplens.decode.clock.anchor_fit import fit_anchors
from warplens.decode.clock.anchor_gaps import SHORT_NS, anchor_gaps
from warplens.record.capture import Capture, Device
from warplens.trace.merge import merge
from warplens.trace.schema import ClockFit

LIMIT = 1000.0 * CYCLES_PER_NS
"""The clock of the launches, in MHz."""
TIMER_STEP = 32


def decoded(blocks: list[Block], fastest_mhz: float) -> object:
    return decode(Capture([launch_of(blocks, warps=1)], device=Device(clock_mhz=fastest_mhz)))


def long_blocks(milliseconds: int) -> list[Block]:
    return [Block(sm, 0, milliseconds * 1_000_000) for sm in range(8)]


def test_a_long_launch_without_anchors_states_what_the_clock_may_have_done() -> None:
    trace = decoded(long_blocks(500), LIMIT / 0.9)
    clock = trace.meta.clock
    assert clock.gap_ns == pytest.approx(5e8, rel=1e-6)
    assert clock.gap_error_ns == pytest.approx(5e7, rel=1e-2)
    assert clock.error_p99_ns == clock.residual_p99_ns + clock.gap_error_ns
    assert clock.error_max_ns == clock.residual_max_ns + clock.gap_error_ns
    (line,) = [line for line in warnings_of(trace) if "anchor" in line]
    assert "no anchor for 500 ms" in line
    assert "up to 50.0 ms" in line
    assert "50.0 ms p99, 50.0 ms max" in clock_line(trace)


def test_the_rate_of_the_launch_itself_counts() -> None:
    """Launches at full speed beside it say nothing about a launch that was slower on average."""
    slow, fast = launch_of(long_blocks(500), warps=1), launch_of(waves(8, sms=8, lasts=1000), warps=1)
    alone, together = (
        decode(Capture(launches, device=Device(clock_mhz=LIMIT / 0.9))).meta.clock
        for launches in ([slow], [slow, *[fast] * 20])
    )
    assert together.gap_error_ns == pytest.approx(alone.gap_error_ns, rel=1e-6)


def test_a_clock_at_its_maximum_may_be_off_by_the_timers_tolerance() -> None:
    """On an H200, a kernel of 4 s at its maximum clock was off by 3 us."""
    clock = decoded(long_blocks(4000), LIMIT).meta.clock
    assert 3.8e3 <= clock.gap_error_ns <= 4.1e5


def test_blocks_that_come_and_go_leave_no_gap() -> None:
    trace = decoded(waves(800, sms=8, lasts=100_000), LIMIT / 0.9)
    assert 0 < trace.meta.clock.gap_ns <= 100_000
    assert trace.meta.clock.gap_error_ns == 0
    assert not [line for line in warnings_of(trace) if "anchor" in line]


def test_a_short_launch_is_not_looked_at() -> None:
    assert decoded(waves(8, sms=8, lasts=1000), LIMIT / 0.9).meta.clock.gap_ns == 0


def test_the_clock_of_the_cpu_needs_no_anchors() -> None:
    """Cycles and ns of TRITON_INTERPRET=1 come from one clock; blocks run one after the other, with long gaps."""
    launch = replace(launch_of(long_blocks(500), warps=1), clock="cpu")
    trace = decode(Capture([launch], device=Device(clock_mhz=LIMIT / 0.9)))
    assert trace.meta.clock.gap_error_ns == 0
    assert not [line for line in warnings_of(trace) if "anchor" in line]


def test_merged_traces_state_the_largest_gap() -> None:
    parts = [decoded(long_blocks(long), LIMIT / 0.9) for long in (10, 300, 20)]
    for rank, part in enumerate(parts):
        part.meta = replace(part.meta, launches=tuple(replace(info, rank=rank) for info in part.meta.launches))
    clock = merge(parts).meta.clock
    assert clock.gap_ns == pytest.approx(3e8, rel=1e-6)
    assert clock.error_p99_ns == pytest.approx(3e7, rel=1e-2)


def test_exports_state_the_same_error(tmp_path: Path) -> None:
    trace = decoded(long_blocks(500), LIMIT / 0.9)
    trace.export(tmp_path / "trace.json")
    about = json.loads((tmp_path / "trace.json").read_text())["otherData"]
    assert about["clock_error_p99_ns"] == trace.meta.clock.error_p99_ns > 4e7


class ChangingClock:
    """A clock that alternates between two rates, in GHz, at random moments."""

    def __init__(self, changes: int, seconds: float, rates: tuple[float, float] = (1.2, 1.9)) -> None:
        rng, self.end = np.random.default_rng(changes), seconds * 1e9
        self.moments = np.r_[0, np.sort(rng.uniform(0, self.end, changes)), self.end]
        self.cycles = np.r_[0, np.cumsum(np.diff(self.moments) * np.resize(rates, changes + 1))]

    def at(self, time: np.ndarray) -> np.ndarray:
        return np.interp(time, self.moments, self.cycles).astype(np.int64)


def misplaced(clock: ChangingClock, anchors: np.ndarray, fastest_mhz: float) -> tuple[np.ndarray, ClockFit]:
    """Errors in ns of many moments that were placed by these anchors, and what is stated about them."""
    unit = np.zeros(len(anchors), np.int64)
    anchors = np.append(anchors[:-1] + np.random.default_rng(1).uniform(0, 300, len(anchors) - 1), clock.end)
    ns = 10**15 + (anchors // TIMER_STEP * TIMER_STEP).astype(np.int64)
    lines = fit_anchors(unit, unit, clock.at(anchors), ns, fastest_mhz)
    moments = np.linspace(0, clock.end, 20_001)
    placed = lines(np.zeros(len(moments), np.int64), clock.at(moments)) + (lines.base_ns - 10**15)
    gaps = anchor_gaps(unit, clock.at(anchors), ns, lines.step_ns, fastest_mhz)
    stated = ClockFit(
        residual_p99_ns=float(np.quantile(lines.residual_ns, 0.99)),
        residual_max_ns=float(lines.residual_ns.max()),
        gap_error_ns=gaps.error_ns,
        gap_error_p99_ns=gaps.error_p99_ns,
    )
    return np.abs(placed - moments), stated


@pytest.mark.parametrize("changes", [1, 2, 7, 30])
@pytest.mark.parametrize("anchors", [2, 4, 30, 301])
def test_the_stated_error_holds_when_the_clock_changes(changes: int, anchors: int) -> None:
    clock = ChangingClock(changes, 3.0)
    error, stated = misplaced(clock, np.linspace(0, clock.end, anchors), 1980.0)
    assert (error <= stated.error_p99_ns + TIMER_STEP).mean() >= 0.99
    assert (error <= stated.error_max_ns + TIMER_STEP).mean() >= 0.999


def test_anchors_make_the_stated_error_small() -> None:
    """A steady clock below its maximum, and one that changes twice in 1 s with an anchor in each millisecond."""
    steady, changing = ChangingClock(0, 3.0), ChangingClock(2, 1.0)
    _, stated = misplaced(steady, np.linspace(0, 3e9, 301), 1980.0)
    assert stated.error_max_ns <= 4 * TIMER_STEP
    _, stated = misplaced(changing, np.linspace(0, 1e9, 900), 1980.0)
    assert stated.error_p99_ns <= 4 * TIMER_STEP
    assert stated.error_max_ns > 1e4


def test_anchors_of_another_clock_do_not_fill_a_gap() -> None:
    ns = np.array([0, 10 * SHORT_NS, 5 * SHORT_NS, 5 * SHORT_NS + 100]).astype(np.int64)
    line = np.array([0, 0, 1, 1])
    assert anchor_gaps(line, ns, ns, 32.0, 2000.0).longest_ns == 10 * SHORT_NS
