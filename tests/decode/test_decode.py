"""Decoding: what was meant is what comes out, by both decoders, whatever the buffer went through."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from warplens.decode import decode
from warplens.native import load
from warplens.record.capture import Capture, Device, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, MAX_SM, Kind, TrackState
from warplens.record.track_writer import TrackWriter
from warplens.trace.model import Trace

REGIONS = {1: "load", 2: "mma", 7: "wait", 4096: "store", 1 << 23: "epilogue"}
MHZ = 1000.0
"""One cycle is one ns, so that expected times are plain numbers."""


@dataclass
class Program:
    """What one warp does, as it is meant: rows to expect beside the records that say so."""

    capacity: int
    full: str = "stop"
    start: int = 1000
    wide: bool = False
    steps: list[tuple[str, int, int]] = field(default_factory=list)


def ns_of(clock: int) -> int:
    return 1_000_000 + clock


def write(program: Program, *, block: int = 0, warp: int = 0, sm: int = 0, exits: bool = True) -> np.ndarray:
    writer = TrackWriter(program.capacity, block=block, warp=warp, sm=sm, full=program.full, wide=program.wide)
    clock = program.start
    writer.start(clock, ns_of(clock))
    stack: list[int] = []
    for what, region, gap in program.steps:
        clock += gap
        if what == "begin":
            stack.append(region)
            writer.record(Kind.BEGIN, region, clock)
        elif what == "end":
            writer.record(Kind.END, stack.pop(), clock)
        elif what == "instant":
            writer.record(Kind.INSTANT, region, clock)
        elif what == "value":
            writer.value(region, clock, gap)
        else:
            writer.anchor(clock, ns_of(clock))
    if exits:
        writer.exit(clock + 10, ns_of(clock + 10))
    return writer.to_bytes()


def expected(program: Program) -> list[tuple]:
    """(region, kind, depth, parent, start, duration, value, open) of each row, walked the slow and obvious way."""
    rows: list[list] = []
    stack: list[int] = []
    clock = program.start
    slots = 0
    lost_before = 0
    total = sum(2 if what in ("value", "anchor") else 1 for what, _, _ in program.steps)
    if program.full == "ring":
        lost_before = max(total - program.capacity, 0)
    for what, region, gap in program.steps:
        clock += gap
        width = 2 if what in ("value", "anchor") else 1
        record = slots + width - 1
        slots += width
        visible = lost_before <= record < (total if program.full == "ring" else program.capacity)
        if what == "end":
            begun = stack.pop()
            if visible and begun >= 0:
                rows[begun][5] = clock - rows[begun][4]
                rows[begun][7] = False
        elif what != "anchor":
            shown = [row for row in stack if row >= 0]
            if visible:
                whole = record - 1 >= lost_before
                value = float(gap) if what == "value" and whole else None
                kind = "span" if what == "begin" else what
                parent = shown[-1] if shown else -1
                rows.append([REGIONS[region], kind, len(shown), parent, clock, 0, value, what == "begin"])
            if what == "begin":
                stack.append(len(rows) - 1 if visible else -1)
    last = _last_visible(program) if program.full == "stop" and total > program.capacity else clock + 10
    for row in rows:
        if row[7]:
            row[5] = last - row[4]
    return [tuple(row) for row in rows]


def _kept(program: Program) -> int:
    """Slots that hold records: a value or anchor at the end of a stopping track fits whole or not at all."""
    widths = [2 if what in ("value", "anchor") else 1 for what, _, _ in program.steps]
    if program.full == "ring":
        return min(sum(widths), program.capacity)
    kept = 0
    for end, width in zip(np.cumsum(widths).tolist(), widths, strict=True):
        kept += width if end <= program.capacity else 0
    return kept


def _last_visible(program: Program) -> int:
    clock, slots, last = program.start, 0, program.start
    for what, _, gap in program.steps:
        clock += gap
        slots += 2 if what in ("value", "anchor") else 1
        if slots <= program.capacity:
            last = clock
    return last


def capture_of(tracks: list[np.ndarray], capacity: int, full: str = "stop", blocks: int = 64) -> Capture:
    launch = Launch("kernel", (blocks, 1, 1), (1024, 1, 1), REGIONS, capacity, np.concatenate(tracks), full)
    return Capture([launch], Device(clock_mhz=MHZ))


def rows_of(trace: Trace, track: int = 0) -> list[tuple]:
    part = trace.select(track=track) if len(trace) else trace
    names = ("region", "kind", "depth", "parent", "start_cycle", "dur_cycles", "value", "open")
    return list(zip(*(part.spans[name].to_pylist() for name in names), strict=True))


def both(capture: Capture) -> Trace:
    """Decode natively and in numpy; the two must agree to the last byte."""
    assert load() is not None, "no C compiler: the native decoder cannot be tested"
    native, plain = decode(capture), decode(capture, native=False)
    assert native.spans.equals(plain.spans)
    assert native.meta == plain.meta
    return native


@st.composite
def programs(draw: st.DrawFn, full: str | None = None) -> Program:
    steps: list[tuple[str, int, int]] = []
    depth = 0
    gaps = st.one_of(st.integers(0, 500), st.sampled_from([1 << 20, 3 << 30]))
    for _ in range(draw(st.integers(0, 40))):
        choices = ["begin", "instant", "value", "anchor", *(["end", "end"] if depth else [])]
        what = draw(st.sampled_from(choices))
        depth += {"begin": 1, "end": -1}.get(what, 0)
        steps.append((what, draw(st.sampled_from(sorted(REGIONS))), draw(gaps)))
    if draw(st.booleans()):
        steps += [("end", 1, draw(gaps)) for _ in range(depth)]
    capacity = draw(st.sampled_from([0, 1, 5, 16, 128]))
    start = draw(st.sampled_from([0, 1000, (1 << 32) - 200, (5 << 32) + 17]))
    return Program(capacity, full or draw(st.sampled_from(["stop", "ring"])), start, steps)


@settings(max_examples=300, deadline=None)
@given(programs())
def test_a_program_decodes_to_what_it_meant(program: Program) -> None:
    trace = both(capture_of([write(program)], program.capacity, program.full))
    assert rows_of(trace) == expected(program)
    total = sum(2 if what in ("value", "anchor") else 1 for what, _, _ in program.steps)
    assert trace.meta.losses.records_written == total
    assert trace.meta.losses.records_lost == total - _kept(program)


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
