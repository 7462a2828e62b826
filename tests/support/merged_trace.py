"""What a merged file must hold, asked of Perfetto's own trace_processor."""

from __future__ import annotations

from typing import Any

from tests.support.trace_processor import TraceProcessor

KERNELS = """
select s.id, s.name, s.ts, s.dur, s.depth, track.name as track, process.name as process,
  extract_arg(s.arg_set_id, 'debug.warplens_launch') as launch
from slice s join process_track track on track.id = s.track_id join process using (upid)
where s.category = 'kernel'
"""
INSIDE = """
select flow.slice_out as kernel, l.id, l.ts, l.dur, process.name as process
from flow join slice l on l.id = flow.slice_in
join process_track on process_track.id = l.track_id join process using (upid)
where l.category = 'launch'
"""
REGIONS = """
select s.name, s.ts, s.dur, s.depth, s.parent_id, thread.name as thread, process.name as process,
  cast(substr(thread.name, instr(thread.name, '#') + 1) as int) as launch
from slice s join thread_track on thread_track.id = s.track_id join thread using (utid) join process using (upid)
where process.name like '%SM %'
"""
STICKING_OUT = """
with kernels as (
  select ts, dur, cast(extract_arg(arg_set_id, 'debug.warplens_launch') as int) as launch from slice
  where category = 'kernel' and extract_arg(arg_set_id, 'debug.warplens_launch') is not null
), regions as (
  select s.ts, s.dur, cast(substr(thread.name, instr(thread.name, '#') + 1) as int) as launch
  from slice s join thread_track on thread_track.id = s.track_id join thread using (utid) join process using (upid)
  where process.name like '%SM %'
)
select count(*) as regions, count(distinct launch) as launches,
  max(max(kernels.ts - regions.ts, regions.ts + regions.dur - kernels.ts - kernels.dur)) as out_ns
from regions join kernels using (launch)
"""
ALIGNMENT = """
select s.name, s.ts, s.dur, extract_arg(s.arg_set_id, 'debug.error_ns') as error_ns,
  extract_arg(s.arg_set_id, 'debug.offset_ns') as offset_ns, extract_arg(s.arg_set_id, 'debug.matched') as matched,
  extract_arg(s.arg_set_id, 'debug.unmatched') as unmatched
from slice s where s.category = 'alignment'
"""


def assert_contained(processor: TraceProcessor) -> dict[str, Any]:
    """Every recorded kernel contains its regions, none sticks out by more than the file states; gives both numbers."""
    assert processor.problems() == []
    (alignment,) = processor.query(ALIGNMENT)
    (sticking,) = processor.query(STICKING_OUT)
    recorded = [row for row in processor.query(KERNELS) if row["launch"] is not None]
    assert sticking["launches"] == len(recorded) == alignment["matched"]
    assert sticking["out_ns"] <= alignment["error_ns"]
    inside = processor.query(INSIDE)
    spans = {row["id"]: row for row in recorded}
    assert {row["kernel"] for row in inside} == set(spans)
    for row in inside:
        kernel = spans[row["kernel"]]
        out = max(kernel["ts"] - row["ts"], row["ts"] + row["dur"] - kernel["ts"] - kernel["dur"])
        assert out <= alignment["error_ns"]
    return alignment | sticking
