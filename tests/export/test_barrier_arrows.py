"""Arrows from arrivals to waits, as Perfetto's own trace_processor reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.barrier_pipeline import run_pipeline
from tests.support.builders import Span, make_trace
from tests.support.simulated_mbarrier import BarrierWorld, meeting
from tests.support.trace_processor import TraceProcessor
from warplens.decode import decode
from warplens.trace.model import Trace

FLOWS = """
select out.name as source, source.name as from_thread, out.ts as leaves, target.name as to_thread, "in".name as target,
  "in".ts as arrives
from flow join slice out on out.id = flow.slice_out join slice "in" on "in".id = flow.slice_in
join thread_track st on st.id = out.track_id join thread source on source.utid = st.utid
join thread_track tt on tt.id = "in".track_id join thread target on target.utid = tt.utid
order by arrives, leaves, to_thread
"""
SLICES = """
select name, ts, dur from slice where category is null or category != 'barrier' order by ts, name, dur
"""


def expected(trace: Trace) -> list[tuple]:
    warp, block, start = trace.numpy("warp"), trace.numpy("block"), trace.numpy("start_ns")
    end, region = start + trace.numpy("dur_ns"), trace.spans["region"].to_pylist()

    def thread(row: int) -> str:
        return f"{trace.kernels[0]} #0 block {block[row]} warp {warp[row]}"

    return sorted(
        (int(end[edge["wait"]]), int(start[edge["arrival_record"]]), thread(edge["wait"]),
         thread(edge["arrival_record"]), region[edge["arrival_record"]])
        for edge in trace.edges.to_pylist()
        if edge["waited_ns"] > 0
    )  # fmt: skip


@pytest.mark.parametrize("suffix", ["pftrace", "json"])
@pytest.mark.parametrize("which", ["pipeline", "meeting"])
def test_every_wait_that_waited_has_an_arrow_from_its_arrival(suffix: str, which: str, tmp_path: Path) -> None:
    if which == "pipeline":
        trace = run_pipeline(blocks=2, tiles=8, work=100).trace
    else:
        counts, programs = meeting(4, 6, lambda: 100)
        world = BarrierWorld(counts, 3)
        world.run(programs)
        trace = decode(world.capture())
    path = tmp_path / f"t.{suffix}"
    trace.export(path)
    processor = TraceProcessor(path)
    assert processor.problems() == []
    found = [
        (row["arrives"], row["leaves"], row["to_thread"], row["from_thread"], row["source"])
        for row in processor.query(FLOWS)
    ]
    assert sorted(found) == expected(trace)
    assert len(found) >= 5


@pytest.mark.parametrize("suffix", ["pftrace", "json"])
def test_arrows_leave_the_spans_as_they_are(suffix: str, tmp_path: Path) -> None:
    trace = run_pipeline(blocks=2, tiles=6, work=100).trace
    seen = []
    for number, one in enumerate((trace, trace.select(kind="span"))):
        path = tmp_path / f"{number}.{suffix}"
        one.export(path)
        seen.append([(row["name"], row["ts"], row["dur"]) for row in TraceProcessor(path).query(SLICES)])
    assert seen[0] == seen[1]
    assert len(seen[0]) > 50


def test_barrier_words_are_no_counters(tmp_path: Path) -> None:
    trace = run_pipeline(blocks=1, tiles=4, work=10).trace
    trace.export(tmp_path / "t.pftrace")
    assert TraceProcessor(tmp_path / "t.pftrace").query("select count(*) as n from counter")[0]["n"] == 0
    trace.export(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"M", "X", "s", "f"}


def test_a_trace_without_barriers_has_no_arrows(tmp_path: Path) -> None:
    make_trace([Span("load", 0, 10), Span("wait", 10, 20)]).export(tmp_path / "t.pftrace")
    assert TraceProcessor(tmp_path / "t.pftrace").query("select count(*) as n from flow")[0]["n"] == 0
