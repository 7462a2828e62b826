"""What Perfetto's own trace_processor reads from a .pftrace is what was in the trace."""

from __future__ import annotations

import math
import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings

from tests.support.builders import Span, make_trace
from tests.support.mark_programs import programs
from tests.support.trace_processor import TraceProcessor
from warplens import native
from warplens.export import track_table
from warplens.export.packets import track_id
from warplens.trace.model import Trace

SLICES = """
select s.id, s.name, s.ts, s.dur, s.depth, s.parent_id, s.category, thread.name as thread, tid, process.name as process,
  extract_arg(s.arg_set_id, 'debug.cycles') as cycles, extract_arg(s.arg_set_id, 'debug.open') as open
from slice s join thread_track on thread_track.id = s.track_id join thread using (utid) join process using (upid)
"""
LAUNCHES = """
select s.name, s.ts, s.dur, process.name as process, s.category from slice s
join process_track on process_track.id = s.track_id join process using (upid)
"""
COUNTERS = """
select counter.ts, counter.value, track.name, thread.name as thread from counter
join thread_counter_track track on track.id = counter.track_id join thread using (utid)
"""
SETTINGS = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def thread_name(span: Span, lanes: bool) -> str:
    name = f"{span.kernel} #{span.launch} block {span.block} warp {span.warp}"
    return f"{name} lane {span.lane}" if lanes else name


def process_name(span: Span, spans: list[Span]) -> str:
    rank = f"rank {span.rank} " if len({other.rank for other in spans}) > 1 else ""
    device = f"device {span.device} " if len({other.device for other in spans}) > 1 else ""
    return f"{rank}{device}SM {span.sm}"


@SETTINGS
@given(spans=programs())
def test_nested_spans_come_back_as_they_were(spans: list[Span], tmp_path: Path) -> None:
    """Every name, time, depth and parent, zero-length spans and equal times included."""
    make_trace(spans).export(tmp_path / "t.pftrace", force=True)
    processor = TraceProcessor(tmp_path / "t.pftrace")
    assert processor.problems() == []
    lanes = any(span.lane for span in spans)
    slices = processor.query(SLICES)
    row_of = {row["id"]: row["cycles"] for row in slices}
    found = Counter(
        (
            row["thread"],
            row["process"],
            row["name"],
            row["ts"],
            row["dur"],
            row["depth"],
            row_of.get(row["parent_id"], -1),
            row["cycles"],
        )
        for row in slices
    )
    meant = Counter(
        (
            thread_name(span, lanes), process_name(span, spans), span.region, span.start, span.dur, span.depth,
            span.parent, span.cycles if span.kind == "span" else None,
        )
        for span in spans
        if span.kind != "value"
    )  # fmt: skip
    assert found == meant
    assert {row["cycles"] for row in slices if row["open"]} == {span.cycles for span in spans if span.open}


@SETTINGS
@given(spans=programs(loose=True))
def test_spans_that_do_not_nest_load_without_errors(spans: list[Span], tmp_path: Path) -> None:
    """All of them come back with their times, and none inside a span that is not its parent."""
    make_trace(spans).export(tmp_path / "t.pftrace", force=True)
    processor = TraceProcessor(tmp_path / "t.pftrace")
    assert processor.problems() == []
    lanes = any(span.lane for span in spans)
    slices = processor.query(SLICES)
    found = Counter((row["thread"], row["name"], row["ts"], row["dur"]) for row in slices)
    shown = [span for span in spans if span.kind != "value"]
    assert found == Counter((thread_name(span, lanes), span.region, span.start, span.dur) for span in shown)
    row_of = {row["id"]: row["cycles"] for row in slices}
    for row in slices:
        if row["cycles"] is not None and row["parent_id"] is not None:
            assert row_of[row["parent_id"]] == spans[row["cycles"]].parent, "inside a span that is not its parent"
    assert_launches_and_values(processor, spans)


def assert_launches_and_values(processor: TraceProcessor, spans: list[Span]) -> None:
    extents: dict[tuple[str, str], tuple[int, int]] = {}
    for span in spans:
        key = (process_name(span, spans), f"{span.kernel} #{span.launch}")
        begin, end = extents.get(key, (span.start, span.end))
        extents[key] = min(begin, span.start), max(end, span.end)
    launches = processor.query(LAUNCHES)
    assert Counter((row["process"], row["name"], row["ts"], row["dur"]) for row in launches) == Counter(
        (*key, begin, end - begin) for key, (begin, end) in extents.items()
    )
    assert {row["category"] for row in launches} <= {"launch"}
    lanes = any(span.lane for span in spans)
    assert Counter(
        (row["thread"], row["name"], row["ts"], row["value"]) for row in processor.query(COUNTERS)
    ) == Counter(
        (thread_name(span, lanes), span.region, span.start, span.value) for span in spans if span.kind == "value"
    )


@pytest.mark.skipif(native.load() is None, reason=f"no native library: {native.why_not()}")
@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(spans=programs(loose=True, max_tracks=8))
def test_numpy_writes_the_same_bytes_as_c(spans: list[Span], tmp_path: Path) -> None:
    trace = make_trace(spans)
    for annotate in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(track_table, "CHUNK_ROWS", 20)
            trace.export(tmp_path / "c.pftrace", force=True, annotate=annotate)
            patch.setenv("WARPLENS_NATIVE", "0")
            trace.export(tmp_path / "numpy.pftrace", force=True, annotate=annotate)
        assert (tmp_path / "c.pftrace").read_bytes() == (tmp_path / "numpy.pftrace").read_bytes()


@pytest.mark.skipif(native.load() is None, reason=f"no native library: {native.why_not()}")
def test_hundreds_of_overlapping_spans_get_the_same_lanes_from_c_and_numpy(tmp_path: Path) -> None:
    """More lanes than C looks at in a group; spans end out of order and free lanes of every group."""
    numbers = random.Random(3)
    spans = [Span(f"r{at % 5}", 10 * at, numbers.choice([15, 400, 3_000, 20_000])) for at in range(900)]
    spans.sort(key=lambda span: span.start)
    trace = make_trace(spans)
    trace.export(tmp_path / "c.pftrace")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("WARPLENS_NATIVE", "0")
        trace.export(tmp_path / "numpy.pftrace")
    assert (tmp_path / "c.pftrace").read_bytes() == (tmp_path / "numpy.pftrace").read_bytes()
    assert sum(span.end > spans[-1].start for span in spans) > 128, "so many are open at the end"


@pytest.mark.parametrize("use_native", ["1", "0"])
def test_nesting_deeper_than_perfetto_allows(use_native: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """trace_processor drops slices below depth 512: the rest of the stack goes beside, still nested."""
    monkeypatch.setenv("WARPLENS_NATIVE", use_native)
    make_trace([Span(f"r{depth}", depth, 4000 - 2 * depth, depth=depth) for depth in range(1200)]).export(
        tmp_path / "t.pftrace"
    )
    processor = TraceProcessor(tmp_path / "t.pftrace")
    assert processor.problems() == []
    slices = processor.query(SLICES)
    assert sorted((row["ts"], row["dur"]) for row in slices) == [(depth, 4000 - 2 * depth) for depth in range(1200)]
    assert sum(row["parent_id"] is None for row in slices) == 3


def test_asynchronous_spans_leave_the_tracks_own_line_to_the_others(tmp_path: Path) -> None:
    spans = [Span("iteration", 0, 100, depth=0)]
    spans += [Span("copy", 10, 60, depth=1), Span("mma", 20, 30, depth=1), Span("wait", 55, 40, depth=1)]
    make_trace(spans).export(tmp_path / "t.pftrace", force=True)
    lines = TraceProcessor(tmp_path / "t.pftrace").query(
        "select slice.name, track.name as line from slice join thread_track track on track.id = slice.track_id"
    )
    beside = {row["name"] for row in lines if row["line"] and row["line"].endswith("overlap 1")}
    assert beside == {"copy"}


def test_a_selection_still_nests(tmp_path: Path) -> None:
    """Parents outside the selection become -1; the depth still says that the inner span lies inside."""
    trace = make_trace([Span("outer", 0, 100), Span("middle", 10, 50), Span("inner", 20, 10)])
    trace.select(region=["outer", "inner"]).export(tmp_path / "t.pftrace")
    assert [row["depth"] for row in TraceProcessor(tmp_path / "t.pftrace").query(SLICES)] == [0, 1]


def test_rows_in_any_order_give_the_same_file(tmp_path: Path) -> None:
    spans = [Span("a", 0, 9, block=block) for block in range(5)] + [Span("b", 3, 2, block=block) for block in range(5)]
    trace = make_trace(spans)
    trace.export(tmp_path / "sorted.pftrace")
    order = [7, 2, 0, 9, 4, 1, 3, 8, 6, 5]
    table = trace.spans.take(order)
    parents = [order.index(row) if row >= 0 else -1 for row in table["parent"].to_pylist()]
    table = table.set_column(table.schema.get_field_index("parent"), "parent", pa.array(parents, pa.int32()))
    Trace(table, trace.meta).export(tmp_path / "mixed.pftrace")
    assert (tmp_path / "sorted.pftrace").read_bytes() == (tmp_path / "mixed.pftrace").read_bytes()


def test_many_tracks_have_ids_and_order_of_their_own(tmp_path: Path) -> None:
    """More sequences than two bytes number, and threads in the order of block and warp."""
    spans = [Span("a", block, 5, block=block, warp=warp) for block in range(5000) for warp in range(4)]
    make_trace(spans).export(tmp_path / "t.pftrace", force=True)
    processor = TraceProcessor(tmp_path / "t.pftrace")
    assert processor.problems() == []
    threads = processor.query(
        "select distinct thread.name, tid from thread join thread_track using (utid) order by tid"
    )
    assert [row["name"] for row in threads] == [
        f"kernel #0 block {block} warp {warp}" for block in range(5000) for warp in range(4)
    ]
    processes = processor.query("select name from process where pid > 0 order by pid")
    assert [row["name"] for row in processes] == [f"SM {sm}" for sm in range(132)]


def test_size_annotations_and_odd_values(tmp_path: Path) -> None:
    spans = [Span("a", 200 * at, 100, block=at % 4) for at in range(1000)]
    spans += [Span("v", 10**6, kind="value", value=value) for value in (math.nan, math.inf, 0.5, -1.0, 2.0**60)]
    trace = make_trace(spans)
    trace.export(tmp_path / "plain.pftrace", annotate=False)
    trace.export(tmp_path / "noted.pftrace", annotate=True)
    assert (tmp_path / "plain.pftrace").stat().st_size < 30 * len(spans) + 3000
    noted = TraceProcessor(tmp_path / "noted.pftrace")
    assert {row["cycles"] for row in noted.query(SLICES)} == {200}
    assert [row["value"] for row in noted.query(COUNTERS)] == [None, math.inf, 0.5, -1.0, 2.0**60]
    assert {row["cycles"] for row in TraceProcessor(tmp_path / "plain.pftrace").query(SLICES)} == {None}


def test_track_ids_are_stable() -> None:
    """Another writer may refer to them, so they may not change between versions."""
    assert int(track_id("warp", 0, 0, 0, 5, 2, 0)) == 0xEE7297C3EA0D3D
    assert int(track_id("sm", 0, 0, 12)) == 0x525383CB389222A7
