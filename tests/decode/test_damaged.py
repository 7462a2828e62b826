"""Records whose clock lies outside the lifetime of their track: counted, and shown nowhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warplens as wl
from tests.support.nested_ptx import NESTED
from tests.support.simulated_trace import traced
from tests.support.track_programs import Program, both, capture_of, expected, ns_of, programs, rows_of, write
from warplens.analyse.trace_quality import warnings_of
from warplens.decode import decode
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.record.capture import Capture
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, Kind
from warplens.record.track_writer import TrackWriter
from warplens.simulate import GlobalMemory
from warplens.trace.model import Trace
from warplens.weave.weaving import Weaving


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


def saved(trace: Trace, folder: Path) -> Trace:
    """The trace as its file gives it back, with every column checked."""
    read = wl.load(trace.save(folder / "t.warplens"))  # before its columns are asked for
    assert read.spans.equals(trace.spans)
    return read


def test_regions_that_overlap_can_be_saved_and_read_back(tmp_path: Path) -> None:
    writer = TrackWriter(16)
    writer.start(1000, ns_of(1000))
    for kind, region, clock in (
        (Kind.BEGIN, 1, 1010), (Kind.BEGIN, 2, 1020), (Kind.END, 1, 1030), (Kind.INSTANT, 7, 1040), (Kind.END, 2, 1050),
    ):  # fmt: skip
        writer.record(kind, region, clock)
    writer.exit(1060, ns_of(1060))
    trace = both(capture_of([writer.to_bytes()], 16))
    assert trace.meta.losses.mismatched_ends == 1
    rows = [(row["region"], row["depth"], row["parent"]) for row in saved(trace, tmp_path).spans.to_pylist()]
    assert rows == [("load", 0, -1), ("mma", 1, 0), ("wait", 1, 1)], "the region around the instant had ended"


def test_a_trace_whose_first_warps_have_no_rows_can_be_saved(tmp_path: Path) -> None:
    program = Program(16, steps=[("instant", 1, 10)])
    tracks = [write(program, warp=warp) for warp in range(3)]
    for track in tracks[:2]:
        set_clock(track, 0, 0xC0000000)
    trace = decode(capture_of(tracks, 16))
    assert trace.meta.losses.damaged_records == 2
    assert saved(trace, tmp_path).numpy("track").tolist() == [2]


@pytest.mark.parametrize("field", ["exit_clock", "exit_ns"])
def test_a_warp_does_not_live_for_years(field: str, tmp_path: Path) -> None:
    program = Program(16, steps=[("begin", 1, 10)])
    tracks = [write(program, warp=warp) for warp in range(2)]
    header = tracks[0][:HEADER_BYTES].view(HEADER)
    header["exit_clock"] += 1 << 56
    if field == "exit_ns":
        header["exit_ns"] += 1 << 56
    trace = both(capture_of(tracks, 16))
    assert trace.meta.losses.tracks_invalid == 1
    assert saved(trace, tmp_path).numpy("warp").tolist() == [1]


def test_an_anchor_at_a_time_that_no_clock_can_reach_is_left_out(tmp_path: Path) -> None:
    writer = TrackWriter(16)
    writer.start(1000, ns_of(1000))
    writer.anchor(1100, ns_of(1100) + (1 << 60))
    writer.record(Kind.BEGIN, 1, 1_000_000)
    writer.record(Kind.INSTANT, 2, 2_000_000)
    trace = both(capture_of([writer.to_bytes()], 16))
    assert trace.meta.losses.tracks_without_exit == 1
    assert saved(trace, tmp_path).numpy("dur_ns").tolist() == [1_000_000, 0]


def test_a_damaged_barrier_word_is_counted_and_not_shown(tmp_path: Path) -> None:
    writer = TrackWriter(16)
    writer.start(1000, ns_of(1000))
    writer.barrier(1, 1100, BarrierWord(Operation.ARRIVE, 64))
    writer.barrier(2, 1200, BarrierWord(Operation.ARRIVE, 64))
    writer.exit(1300, ns_of(1300))
    track = writer.to_bytes()
    track[HEADER_BYTES : HEADER_BYTES + SLOT_BYTES] = 0xFF
    trace = both(capture_of([track], 16))
    assert trace.meta.losses.damaged_records == 1
    assert saved(trace, tmp_path).spans["region"].to_pylist() == ["mma"]


def test_statistics_of_a_warp_that_do_not_add_up_are_counted_and_not_shown(tmp_path: Path) -> None:
    memory = GlobalMemory(1 << 20)
    out = memory.alloc(4)
    whole, launch = traced(NESTED, "nested", (1, 1, 1), (64, 1, 1), [out, 3], Weaving(mode="aggregate"), memory)
    assert not whole.meta.losses.damaged_records
    launch.raw[HEADER_BYTES + 6] = 0xFF  # the total of the first row of the first warp
    trace = both(Capture([launch]))
    assert trace.meta.losses.damaged_records == 1
    assert len(saved(trace, tmp_path)) == len(whole) - 1
