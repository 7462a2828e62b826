"""Decoding: what was meant is what comes out, by both decoders, whatever the buffer went through."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warplens as wl
from tests.support.track_programs import Program, both, capture_of, expected, kept, ns_of, programs, rows_of, write
from warplens.record.layout import HEADER, HEADER_BYTES, MAX_SM, Kind, TrackState
from warplens.record.track_writer import TrackWriter


@settings(max_examples=300, deadline=None)
@given(programs())
def test_a_program_decodes_to_what_it_meant(program: Program) -> None:
    trace = both(capture_of([write(program)], program.capacity, program.full))
    assert rows_of(trace) == expected(program)
    total = sum(2 if what in ("value", "anchor") else 1 for what, _, _ in program.steps)
    assert trace.meta.losses.records_written == total
    assert trace.meta.losses.records_lost == total - kept(program)


@settings(max_examples=150, deadline=None)
@given(programs(), st.lists(st.integers(0, 1 << 44), min_size=40, max_size=40))
def test_wide_records_survive_gaps_of_any_length(program: Program, gaps: list[int]) -> None:
    steps = [step for step in program.steps if step[0] != "anchor"]
    program.steps = [(what, region, gap) for (what, region, _), gap in zip(steps, gaps, strict=False)]
    program.steps = program.steps[: _balanced(program.steps)]
    program.wide = True
    cut, program.capacity = program.capacity, 256
    trace = both(capture_of([write(program)], 256, program.full))
    assert rows_of(trace) == expected(program)
    assert trace.meta.losses.clock_ambiguous == trace.meta.losses.clock_backward == 0
    program.capacity = cut
    assert len(both(capture_of([write(program)], cut, program.full))) <= cut


def _balanced(steps: list[tuple[str, int, int]]) -> int:
    """How many of `steps` may be taken before an end would lack its begin."""
    depth = 0
    for count, (what, _, _) in enumerate(steps):
        depth += {"begin": 1, "end": -1}.get(what, 0)
        if depth < 0:
            return count
    return len(steps)


def test_wide_records_of_every_kind_and_anchors_between_them() -> None:
    writer = TrackWriter(64, wide=True)
    writer.start(0, ns_of(0))
    far = 9 << 32
    writer.record(Kind.ASYNC_BEGIN, 1, 10, tag=3)
    writer.record(Kind.BEGIN, 2, far)
    writer.anchor(far + 5, ns_of(far + 5))
    writer.record(Kind.ASYNC_END, 1, 2 * far, tag=3)
    writer.value(7, 2 * far + 1, 42)
    writer.record(Kind.END, 2, 3 * far)
    writer.exit(5 * far, ns_of(5 * far))
    trace = both(capture_of([writer.to_bytes()], 64))
    assert [(row[0], row[4], row[5], row[6]) for row in rows_of(trace)] == [
        ("load", 10, 2 * far - 10, None),
        ("mma", far, 2 * far, None),
        ("wait", 2 * far + 1, 0, 42.0),
    ]
    assert trace.meta.losses.clock_ambiguous == 0
    assert trace.meta.losses.torn_payloads == 0


def test_a_wide_record_with_a_garbage_clock_falls_back_to_its_low_word() -> None:
    track = TrackWriter(8, wide=True)
    track.start(0, ns_of(0))
    track.record(Kind.INSTANT, 1, 100)
    track.exit(1000, ns_of(1000))
    raw = track.to_bytes()
    raw[HEADER_BYTES : HEADER_BYTES + 8] = 0xFF
    trace = both(capture_of([raw], 8))
    assert rows_of(trace)[0][4] == 100
    assert trace.meta.losses.torn_payloads == 1


@settings(max_examples=40, deadline=None)
@given(st.lists(programs(full="stop"), min_size=2, max_size=6))
def test_tracks_do_not_disturb_each_other(several: list[Program]) -> None:
    capacity = 48
    for program in several:
        program.capacity = capacity
    tracks = [write(program, block=i, warp=i % 4, sm=i * 3) for i, program in enumerate(several)]
    trace = both(capture_of(tracks, capacity))
    for i, program in enumerate(several):
        want = expected(program)
        if want:
            assert rows_of(trace, i) == want
            part = trace.select(track=i).spans
            assert set(part["block"].to_pylist()) == {i}
            assert set(part["sm"].to_pylist()) == {i * 3}
    parent = trace.numpy("parent")
    inside = parent >= 0
    assert (trace.numpy("track")[inside] == trace.numpy("track")[parent[inside]]).all()


def test_times_count_from_the_first_record() -> None:
    program = Program(8, steps=[("begin", 1, 100), ("end", 1, 50)])
    spans = both(capture_of([write(program)], 8)).spans
    assert spans["start_ns"].to_pylist() == [0]
    assert spans["dur_ns"].to_pylist() == [50]


def _track(records: list[tuple[Kind, int, int]], *, exits: bool = True, capacity: int = 16) -> np.ndarray:
    writer = TrackWriter(capacity)
    writer.start(0, ns_of(0))
    for kind, region, clock in records:
        writer.record(kind, region, clock)
    if exits:
        writer.exit(1000, ns_of(1000))
    return writer.to_bytes()


def test_an_end_without_begin_is_counted_and_named() -> None:
    track = _track([(Kind.END, 1, 10), (Kind.BEGIN, 2, 20), (Kind.END, 2, 30)])
    trace = both(capture_of([track], 16))
    assert len(trace) == 1
    assert trace.meta.losses.orphan_ends == 1
    assert trace.meta.losses.details == ("kernel block 0 warp 0 record 0: end of 'load' without a begin",)


def test_crossing_ends_close_their_own_spans_and_are_reported() -> None:
    track = _track([(Kind.BEGIN, 1, 10), (Kind.BEGIN, 2, 20), (Kind.END, 1, 30), (Kind.END, 2, 45)])
    trace = both(capture_of([track], 16))
    assert [row[:6] for row in rows_of(trace)] == [("load", "span", 0, -1, 10, 20), ("mma", "span", 1, 0, 20, 25)]
    assert trace.meta.losses.mismatched_ends == 1
    assert "record 2: end of 'load' while 'mma' is innermost" in trace.meta.losses.details[0]


def test_a_trap_leaves_open_spans_closed_at_the_last_record() -> None:
    track = _track([(Kind.BEGIN, 1, 10), (Kind.BEGIN, 2, 20), (Kind.INSTANT, 7, 35)], exits=False)
    trace = both(capture_of([track], 16))
    assert [(row[0], row[5], row[7]) for row in rows_of(trace)] == [
        ("load", 25, True),
        ("mma", 15, True),
        ("wait", 0, False),
    ]
    assert trace.meta.losses.tracks_without_exit == 1
    assert trace.meta.losses.open_spans == 2


def test_an_early_exit_closes_at_the_exit() -> None:
    trace = both(capture_of([_track([(Kind.BEGIN, 1, 10)])], 16))
    assert rows_of(trace) == [("load", "span", 0, -1, 10, 990, None, True)]


def test_a_ring_nobody_closed_starts_at_its_oldest_record() -> None:
    writer = TrackWriter(4, full="ring")
    writer.start(0, ns_of(0))
    for i in range(6):
        writer.record(Kind.INSTANT, 1, 10 * (i + 1))
    trace = both(capture_of([writer.to_bytes()], 4, "ring"))
    assert [row[4] for row in rows_of(trace)] == [30, 40, 50, 60]
    assert "inferred" in trace.meta.losses.details[-1]


def test_asynchronous_spans_match_by_tag_and_may_overlap() -> None:
    writer = TrackWriter(16)
    writer.start(0, ns_of(0))
    for kind, clock, tag in [
        (Kind.ASYNC_BEGIN, 10, 0),
        (Kind.ASYNC_BEGIN, 20, 1),
        (Kind.ASYNC_END, 50, 0),
        (Kind.ASYNC_END, 60, 1),
        (Kind.ASYNC_END, 70, 2),
    ]:
        writer.record(kind, 1, clock, tag)
    writer.exit(100, ns_of(100))
    trace = both(capture_of([writer.to_bytes()], 16))
    assert [(row[4], row[5]) for row in rows_of(trace)] == [(10, 40), (20, 40)]
    assert trace.meta.losses.orphan_ends == 1


def test_a_gap_longer_than_the_clock_is_recovered_by_an_anchor() -> None:
    gap = (7 << 32) + 12345
    program = Program(16, steps=[("begin", 1, 10), ("anchor", 1, gap), ("end", 1, 5)])
    trace = both(capture_of([write(program)], 16))
    assert rows_of(trace)[0][5] == gap + 5
    assert trace.meta.losses.clock_ambiguous == 0


def test_an_anchor_in_the_start_s_own_step_of_the_globaltimer_counts() -> None:
    writer = TrackWriter(16)
    writer.start(1000, ns_of(1000))
    writer.anchor(1020, ns_of(1000))
    writer.exit(2000, ns_of(2000))
    assert both(capture_of([writer.to_bytes()], 16)).meta.clock.anchors == 3


def test_a_gap_longer_than_the_clock_without_anchor_is_flagged() -> None:
    program = Program(16, steps=[("begin", 1, 10), ("end", 1, 3 << 32), ("instant", 1, 5)])
    assert both(capture_of([write(program)], 16)).meta.losses.clock_ambiguous == 1


def test_a_small_step_back_is_not_a_wrap() -> None:
    track = _track([(Kind.BEGIN, 1, 100), (Kind.INSTANT, 2, 95), (Kind.END, 1, 130)])
    trace = both(capture_of([track], 16))
    assert [(row[4], row[5]) for row in rows_of(trace)] == [(100, 30), (95, 0)]
    assert trace.meta.losses.clock_backward == 1
    assert trace.numpy("start_ns").tolist() == [5, 0], "times count from the earliest record, not from the first"
    assert trace.meta.origin_ns == ns_of(95)


def test_a_64_bit_clock_that_steps_back_is_said(tmp_path: Path) -> None:
    writer = TrackWriter(16, wide=True)
    writer.start(0, ns_of(0))
    for clock in (7 << 32, 5, 9):
        writer.record(Kind.INSTANT, 1, clock)
    writer.exit(8 << 32, ns_of(8 << 32))
    trace = both(capture_of([writer.to_bytes()], 16))
    assert trace.meta.losses.clock_backward == 1
    assert len(wl.load(trace.save(tmp_path / "t.warplens")).spans) == 3, "it reads back: the trace says why"


def test_unknown_regions_are_shown_and_counted() -> None:
    trace = both(capture_of([_track([(Kind.INSTANT, 99, 10)])], 16))
    assert rows_of(trace)[0][0] == "(unknown region)"
    assert trace.meta.losses.unknown_regions == 1


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("magic", 7),
        ("block", 64),
        ("warp", 40),
        ("sm", MAX_SM + 1),
        ("state", 9),
        ("start_clock", 1 << 63),
        ("exit_ns", 1 << 61),
        ("lane", 99),
    ],
)
def test_impossible_headers_are_counted_not_read(name: str, value: int) -> None:
    track = _track([(Kind.INSTANT, 1, 10)])
    track[:HEADER_BYTES].view(HEADER)[name] = value
    trace = both(capture_of([track], 16))
    assert len(trace) == 0
    assert trace.meta.losses.tracks_invalid == 1


def test_the_last_sm_keeps_its_number() -> None:
    trace = both(capture_of([write(Program(8, steps=[("instant", 1, 5)]), sm=MAX_SM)], 8))
    assert trace.spans["sm"].to_pylist() == [MAX_SM]


def test_tracks_nobody_wrote_are_counted() -> None:
    trace = both(capture_of([np.zeros(256, np.uint8), _track([(Kind.INSTANT, 1, 10)])], 16))
    assert (trace.meta.losses.tracks_unwritten, trace.meta.losses.tracks, len(trace)) == (1, 1, 1)


def test_deep_nesting_is_the_same_in_both_decoders() -> None:
    records = [(Kind.BEGIN, 1, i) for i in range(400)] + [(Kind.END, 1, 400 + i) for i in range(400)]
    trace = both(capture_of([_track(records, capacity=800)], 800))
    assert trace.numpy("depth").max() == 399
    assert trace.numpy("dur_cycles")[0] == 799


@settings(max_examples=150, deadline=None)
@given(st.binary(min_size=0, max_size=64 * 8), st.sampled_from(["stop", "ring"]), st.booleans(), st.integers(0, 90))
def test_garbage_records_never_raise_and_never_multiply(data: bytes, full: str, exited: bool, written: int) -> None:
    capacity = 64
    track = TrackWriter(capacity).to_bytes()
    header = track[:HEADER_BYTES].view(HEADER)
    header["written"], header["exit_clock"], header["exit_ns"] = written, 1 << 33, 1 << 33
    header["state"] = TrackState.EXITED if exited else TrackState.RUNNING
    track[HEADER_BYTES : HEADER_BYTES + len(data)] = np.frombuffer(data, np.uint8)
    trace = both(capture_of([track], capacity, full))
    assert len(trace) <= capacity
