"""Records whose clock lies outside the lifetime of their track: counted, and shown nowhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.track_programs import Program, both, capture_of, expected, programs, rows_of, write
from warplens.analyse.trace_quality import warnings_of
from warplens.decode import decode
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES
from warplens.trace.model import Trace


def set_clock(track: np.ndarray, slot: int, clock: int) -> None:
    at = HEADER_BYTES + slot * SLOT_BYTES + 4
    track[at : at + 4] = np.frombuffer(np.uint32(clock & 0xFFFFFFFF).tobytes(), np.uint8)


def assert_inside_lifetimes(trace: Trace, tracks: list[np.ndarray]) -> None:
    start, duration, of = (trace.numpy(name) for name in ("start_cycle", "dur_cycles", "track"))
    for number, track in enumerate(tracks):
        header = track[:HEADER_BYTES].view(HEADER)[0]
        mine = of == number
        assert (start[mine] >= int(header["start_clock"])).all()
        assert ((start + duration)[mine] <= int(header["exit_clock"])).all()


def test_one_wrong_clock_costs_one_record_and_moves_no_other() -> None:
    steps = [("instant", 1, 10), ("instant", 2, 10), ("instant", 7, 10), ("begin", 1, 10), ("end", 1, 40)]
    program = Program(16, steps=steps)
    track = write(program)
    set_clock(track, 1, 0xC0000000)
    trace = both(capture_of([track], 16))
    assert rows_of(trace) == [row for row in expected(program) if row[0] != "mma"]
    losses = trace.meta.losses
    assert losses.damaged_records == 1
    assert not losses.clean
    assert losses.details == (
        "kernel block 0 warp 0 record 1: the clock is outside the warp's lifetime; the record is not shown",
    )
    assert any("1 record had a clock outside the lifetime" in line for line in warnings_of(trace))


def test_a_span_with_a_damaged_end_is_open_and_ends_with_its_warp() -> None:
    program = Program(16, steps=[("begin", 1, 10), ("begin", 2, 5), ("end", 1, 20), ("end", 1, 30)])
    track = write(program)
    set_clock(track, 2, 0x90000000)
    trace = both(capture_of([track], 16))
    assert [(row[0], row[5], row[7]) for row in rows_of(trace)] == [("load", 55, False), ("mma", 60, True)]
    assert trace.meta.losses.damaged_records == 1
    assert_inside_lifetimes(trace, [track])


@pytest.mark.parametrize("wrong", [0, 3, 7])
def test_a_ring_that_lost_its_oldest_records_keeps_the_clocks_around_a_damaged_one(wrong: int) -> None:
    program = Program(8, "ring", start=5000, steps=[("instant", 1, 100)] * 12)
    track = write(program)
    slot = (4 + wrong) % 8  # the oldest of 12 records in 8 slots is in slot 4
    set_clock(track, slot, 0xB0000000)
    trace = both(capture_of([track], 8, "ring"))
    clocks = [5000 + 100 * (5 + i) for i in range(8) if i != wrong]
    assert trace.numpy("start_cycle").tolist() == clocks
    assert trace.meta.losses.damaged_records == 1


@settings(max_examples=200, deadline=None)
@given(programs(), st.lists(st.tuples(st.integers(0, 127), st.integers(0, 0xFFFFFFFF)), min_size=1, max_size=4))
def test_wrong_clocks_never_show_a_time_outside_the_lifetime(program: Program, wrong: list[tuple[int, int]]) -> None:
    track = write(program)
    intact = decode(capture_of([track.copy()], program.capacity, program.full))
    for slot, clock in wrong:
        if slot < program.capacity:
            set_clock(track, slot, clock)
    trace = both(capture_of([track], program.capacity, program.full))
    assert_inside_lifetimes(trace, [track])
    assert len(trace) <= len(intact) + 2 * len(wrong), "a wrong clock adds no rows, except by changing a payload"


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_wrong_clock_in_one_track_leaves_the_others_as_they_were(data: st.DataObject) -> None:
    several = [Program(32, steps=[("begin", 1, 50), ("instant", 2, 5), ("end", 1, 9)] * 5) for _ in range(4)]
    tracks = [write(program, block=i, sm=i) for i, program in enumerate(several)]
    hurt = data.draw(st.integers(0, 3))
    set_clock(tracks[hurt], data.draw(st.integers(0, 14)), data.draw(st.integers(10_000, 0xFFFF0000)))
    trace = both(capture_of(tracks, 32))
    assert trace.meta.losses.damaged_records == 1
    for i in set(range(4)) - {hurt}:
        assert rows_of(trace, i) == expected(several[i])
    parent, of = trace.numpy("parent"), trace.numpy("track")
    assert (of[parent[parent >= 0]] == of[parent >= 0]).all()
