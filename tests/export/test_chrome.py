"""What trace_processor and a JSON reader find in a Chrome trace is what was in the trace."""

from __future__ import annotations

import gzip
import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.mark_programs import programs
from tests.support.trace_processor import TraceProcessor
from warplens import native
from warplens.export import track_table
from warplens.trace import columns, model, row_groups

SLICES = """
select s.id, s.name, s.ts, s.dur, s.depth, s.parent_id, s.category, thread.name as thread,
  extract_arg(s.arg_set_id, 'args.cycles') as cycles, extract_arg(s.arg_set_id, 'args.ns') as ns,
  extract_arg(s.arg_set_id, 'args.dur_ns') as dur_ns, extract_arg(s.arg_set_id, 'args.block') as block,
  extract_arg(s.arg_set_id, 'args.warp') as warp, extract_arg(s.arg_set_id, 'args.launch') as launch
from slice s join thread_track on thread_track.id = s.track_id join thread using (utid) join process using (upid)
"""


def as_shown(name: str) -> str:
    """trace_processor has a word for the empty name, and undoes escapes only in names that have a quote."""
    return name if '"' in name else json.dumps(name, ensure_ascii=False)[1:-1] or "[No name]"


def cycles_of(span: Span) -> int | None:
    return span.cycles if span.kind == "span" else None


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(spans=programs(loose=True))
def test_spans_values_and_launches_come_back(spans: list[Span], tmp_path: Path) -> None:
    make_trace(spans).export(tmp_path / "t.json", force=True)
    processor = TraceProcessor(tmp_path / "t.json")
    assert processor.problems() == []
    everything = processor.query(SLICES)
    slices = [row for row in everything if row["category"] != "launch"]
    found = Counter(
        (row["name"], row["ts"], row["dur"], row["cycles"], row["block"], row["warp"], row["launch"]) for row in slices
    )
    meant = Counter(
        (as_shown(span.region), span.start, span.dur, cycles_of(span), span.block, span.warp, span.launch)
        for span in spans
        if span.kind != "value"
    )
    assert found == meant
    assert all(row["ns"] == row["ts"] and row["dur_ns"] in (row["dur"], None) for row in everything)
    assert sum(row["category"] == "launch" for row in everything) == len(
        {(s.rank, s.device, s.sm, s.launch) for s in spans}
    )
    counters = processor.query("select ts, value from counter order by ts, value")
    values = sorted((span.start, span.value) for span in spans if span.kind == "value")
    assert [row["ts"] for row in counters] == [start for start, _ in values]
    # trace_processor reads decimals to within one unit in the last place
    assert [row["value"] for row in counters] == pytest.approx([value for _, value in values], rel=1e-14, abs=1e-300)


@pytest.mark.skipif(native.load() is None, reason=f"no native library: {native.why_not()}")
@settings(
    deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
@given(spans=programs(loose=True, max_tracks=8))
def test_arrow_writes_the_same_bytes_as_c(spans: list[Span], tmp_path: Path) -> None:
    trace = make_trace(spans)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(track_table, "CHUNK_ROWS", 20)
        trace.export(tmp_path / "c.json", force=True)
        patch.setenv("WARPLENS_NATIVE", "0")
        trace.export(tmp_path / "arrow.json", force=True)
    assert (tmp_path / "c.json").read_bytes() == (tmp_path / "arrow.json").read_bytes()


@pytest.mark.skipif(native.load() is None, reason=f"no native library: {native.why_not()}")
def test_numbers_of_every_length_come_out_of_c(tmp_path: Path) -> None:
    lengths = [0, *(10**digits + less for digits in range(1, 17) for less in (-1, 0))]
    spans = [Span("r", length, length, block=at) for at, length in enumerate(lengths)]
    make_trace(spans).export(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_bytes())["traceEvents"]
    found = [event["args"] for event in events if event["ph"] == "X" and event.get("cat") != "launch"]
    assert sorted((one["ns"], one["dur_ns"]) for one in found) == [(length, length) for length in lengths]


def test_nesting_and_names_of_lines(tmp_path: Path) -> None:
    spans = [Span("a", 0, 100), Span("b", 10, 20), Span("c", 12, 5), Span("d", 40, 60), Span("e", 0, 9, rank=1)]
    spans += [Span("copy", 5, 50, warp=1, depth=0), Span("mma", 8, 10, warp=1, depth=0)]
    make_trace(spans).export(tmp_path / "t.json.gz", force=True)
    processor = TraceProcessor(tmp_path / "t.json.gz")
    rows = {row["name"]: row for row in processor.query(SLICES)}
    assert [rows[name]["depth"] for name in "abcd"] == [0, 1, 2, 1]
    assert rows["c"]["parent_id"] == rows["b"]["id"]
    assert rows["copy"]["thread"] == "kernel #0 block 0 warp 1 overlap 1"
    assert rows["mma"]["thread"] == "kernel #0 block 0 warp 1"
    assert {row["name"] for row in processor.query("select name from process where pid > 0")} == {
        "rank 0 SM 0",
        "rank 1 SM 0",
    }


@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_any_json_reader_reads_it(name: str, tmp_path: Path) -> None:
    spans = [Span('"<b>\n\\', 1234567, 1, block=5, warp=2)]
    spans += [Span("v", 5, kind="value", value=value, block=5) for value in (math.nan, math.inf, 1.5)]
    make_trace(spans).export(tmp_path / name)
    data = (tmp_path / name).read_bytes()
    text = gzip.decompress(data) if name.endswith("gz") else data

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is not JSON")

    events = json.loads(text, parse_constant=refuse)["traceEvents"]
    span = next(event for event in events if event["ph"] == "X" and event.get("cat") != "launch")
    assert (span["name"], span["ts"], span["dur"]) == ('"<b>\n\\', 1234.567, 0.001)
    assert span["args"] == {"ns": 1234567, "dur_ns": 1, "cycles": 2, "block": 5, "warp": 2, "launch": 0}
    assert [event["args"]["v"] for event in events if event["ph"] == "C"] == [1.5]
    assert [event["args"]["value"] for event in events if event["ph"] == "i"] == ["nan", "inf"]


@pytest.mark.parametrize("native_code", ["0", "1"])
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_rows_in_parts_give_the_bytes_of_rows_at_once(
    native_code: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a file with instants and values, whose parts are read one after the other, in little memory."""
    kinds = [("a", "span", None), ("b", "value", 1.5), ("c", "instant", None)] * 9
    spans = [
        Span(region, at * 10, 5 if kind == "span" else 0, block=block, warp=warp, kind=kind, value=value)
        for block in range(4)
        for warp in range(2)
        for at, (region, kind, value) in enumerate(kinds)
    ]
    monkeypatch.setenv("WARPLENS_NATIVE", native_code)
    trace = make_trace(spans)
    monkeypatch.setattr(row_groups, "MOST_ROWS", 60)
    monkeypatch.setattr(columns, "_ROWS_AT_ONCE", 60)
    path = trace.save(tmp_path / "t.warplens")
    trace.export(tmp_path / f"whole{suffix}")
    monkeypatch.setattr(model, "BLOCK_ROWS", 30)
    monkeypatch.setattr(track_table, "CHUNK_ROWS", 10)
    wl.load(path).export(tmp_path / f"parts{suffix}")
    opened = gzip.open if suffix.endswith(".gz") else open
    with opened(tmp_path / f"whole{suffix}", "rt") as whole, opened(tmp_path / f"parts{suffix}", "rt") as parts:
        events = [json.load(file)["traceEvents"] for file in (whole, parts)]
    assert len(events[0]) == len(events[1]) > len(spans)
    assert sorted(map(str, events[0])) == sorted(map(str, events[1]))


def test_an_export_reads_no_column_whole(tmp_path: Path) -> None:
    path = make_trace([Span("a", at * 10, 5, block=at % 4) for at in range(40)]).save(tmp_path / "t.warplens")
    trace = wl.load(path)
    trace.export(tmp_path / "t.json")
    assert not trace._cache
