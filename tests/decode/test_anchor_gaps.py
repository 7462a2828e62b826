"""Times between anchors: a trace says how far the clock may have gone astray where nothing ties it to the timer."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.wave_capture import CYCLES_PER_NS, Block, launch_of, waves
from warplens.analyse.trace_quality import warnings_of
from warplens.decode import decode
from warplens.decode.clock.anchor_gaps import SHORT_NS, gap_error
from warplens.record.capture import Capture, Device
from warplens.trace.merge import merge

LIMIT = 1000.0 * CYCLES_PER_NS
"""The clock of the launches, in MHz."""


def decoded(blocks: list[Block], fastest_mhz: float) -> object:
    return decode(Capture([launch_of(blocks, warps=1)], device=Device(clock_mhz=fastest_mhz)))


def long_blocks(milliseconds: int) -> list[Block]:
    return [Block(sm, 0, milliseconds * 1_000_000) for sm in range(8)]


def test_a_long_launch_without_anchors_states_what_the_clock_may_have_done() -> None:
    trace = decoded(long_blocks(500), LIMIT / 0.9)
    clock = trace.meta.clock
    assert clock.gap_ns == pytest.approx(5e8, rel=1e-6)
    assert clock.gap_error_ns == pytest.approx(5e7, rel=1e-3)
    (line,) = [line for line in warnings_of(trace) if "anchor" in line]
    assert "no anchor for 500 ms" in line
    assert "up to 50.0 ms" in line


def test_a_clock_at_its_maximum_cannot_have_changed() -> None:
    trace = decoded(long_blocks(500), LIMIT)
    assert trace.meta.clock.gap_error_ns < 1e4
    assert not [line for line in warnings_of(trace) if "anchor" in line]


def test_blocks_that_come_and_go_leave_no_gap() -> None:
    trace = decoded(waves(800, sms=8, lasts=100_000), LIMIT / 0.9)
    assert 0 < trace.meta.clock.gap_ns <= 100_000
    assert trace.meta.clock.gap_error_ns == 0


def test_a_short_launch_is_not_looked_at() -> None:
    assert decoded(waves(8, sms=8, lasts=1000), LIMIT / 0.9).meta.clock.gap_ns == 0
    assert gap_error(SHORT_NS - 1, 1000, 2000) == 0
    assert gap_error(SHORT_NS, 1000, 2000) == SHORT_NS / 2
    assert gap_error(SHORT_NS, 1000, 0) == pytest.approx(0.15 * SHORT_NS)


def test_merged_traces_state_the_largest_gap() -> None:
    parts = [decoded(long_blocks(long), LIMIT / 0.9) for long in (10, 300, 20)]
    for rank, part in enumerate(parts):
        part.meta = replace(part.meta, launches=tuple(replace(info, rank=rank) for info in part.meta.launches))
    assert merge(parts).meta.clock.gap_ns == pytest.approx(3e8, rel=1e-6)
