"""Warps that left no record: their lives are rows of the trace."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from warplens.analyse.findings import findings
from warplens.analyse.run_summary import summarise
from warplens.analyse.waves import waves
from warplens.decode import decode
from warplens.record.capture import AUTOMATIC, Capture, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, TRACK_MAGIC, Kind, track_stride, word0
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE

CAPACITY = 4


def capture(programs: list[list[tuple[Kind, int, int]]], regions: dict[int, str], **extra: Any) -> Launch:
    """One block per program; a program is (kind, region, cycles since the start)."""
    stride = track_stride(CAPACITY)
    raw = np.zeros((len(programs), stride), np.uint8)
    for block, program in enumerate(programs):
        header = raw[block, :HEADER_BYTES].view(HEADER)[0]
        start, ns = 1000 + 100 * block, 5000 + 100 * block
        header["magic"], header["block"], header["sm"], header["state"] = TRACK_MAGIC, block, block % 2, 1
        header["start_clock"], header["start_ns"] = start, ns
        header["exit_clock"], header["exit_ns"], header["written"] = start + 50, ns + 50, len(program)
        for slot, (kind, region, cycles) in enumerate(program):
            at = HEADER_BYTES + slot * SLOT_BYTES
            if kind is not Kind.EMPTY:
                raw[block, at : at + SLOT_BYTES].view(np.uint32)[:] = word0(kind, region), start + cycles
    return Launch("k", (len(programs), 1, 1), (32, 1, 1), regions, CAPACITY, raw.reshape(-1), extra=extra)


def decoded(*launches: Launch, native: bool = True) -> Trace:
    return decode(Capture(list(launches)), native=native)


NESTED = [(Kind.BEGIN, 1, 5), (Kind.BEGIN, 2, 10), (Kind.END, 2, 20), (Kind.END, 1, 30)]


@pytest.mark.parametrize("native", [False, True])
def test_warps_without_a_record_have_a_span_over_their_lives(native: bool) -> None:
    marked = capture([[], NESTED, [], NESTED], {1: "outer", 2: "inner"}, **{AUTOMATIC: True})
    bare = capture([[], []], {}, **{AUTOMATIC: True})
    rows = decoded(bare, marked, native=native).spans.to_pylist()
    found = [(row["launch"], row["block"], row["region"], row["depth"], row["parent"]) for row in rows]
    assert found == [
        (0, 0, LIFE, 0, -1), (0, 1, LIFE, 0, -1), (1, 0, LIFE, 0, -1), (1, 1, "outer", 0, -1), (1, 1, "inner", 1, 3),
        (1, 2, LIFE, 0, -1), (1, 3, "outer", 0, -1), (1, 3, "inner", 1, 6),
    ]  # fmt: skip
    lives = [row for row in rows if row["region"] == LIFE]
    assert [(row["start_cycle"], row["dur_cycles"]) for row in lives] == [
        (1000, 50),
        (1100, 50),
        (1000, 50),
        (1200, 50),
    ]
    assert not any(row["open"] for row in rows)
    assert [row["track"] for row in rows] == [0, 1, 2, 3, 3, 4, 5, 5]


def test_a_launch_of_lives_alone_answers_what_needs_no_region() -> None:
    trace = decoded(capture([[]] * 6, {}, **{AUTOMATIC: True}))
    (info,) = trace.meta.launches
    assert (info.tracks, info.busy_cycles) == (6, 300)
    assert info.end_ns - info.begin_ns == 550
    assert info.covered == {}, "there is no region that could cover anything"
    assert trace.meta.losses.records_lost == 0
    answer = waves(trace).kernels["k"]
    assert (answer.blocks, answer.complete) == (6, True)
    (row,) = trace.stats().rows
    assert (row.region, row.count, row.share) == (LIFE, 6, pytest.approx(1.0))


def test_authors_of_marks_choose_the_warps_they_look_at() -> None:
    assert len(decoded(capture([[], NESTED], {1: "outer", 2: "inner"}))) == 2
    assert len(decoded(capture([[]], {1: "outer"}))) == 0
    assert len(decoded(capture([[]], {}))) == 1, "without any region a launch cannot have hand-written marks"


def test_a_warp_that_never_exited_has_no_known_life() -> None:
    launch = capture([[], []], {}, **{AUTOMATIC: True})
    launch.raw[:HEADER_BYTES].view(HEADER)[0]["state"] = 0
    trace = decoded(launch)
    assert [row["block"] for row in trace.spans.to_pylist()] == [1]
    assert trace.meta.losses.tracks_without_exit == 1


@pytest.mark.parametrize("native", [False, True])
def test_a_fixed_slot_whose_mark_was_not_passed_is_no_loss(native: bool) -> None:
    program = [(Kind.EMPTY, 0, 0), (Kind.EMPTY, 0, 0), (Kind.BEGIN, 1, 5), (Kind.END, 1, 9)]
    for extra, lost in (({"store": "fixed"}, 0), ({}, 2)):
        trace = decoded(capture([program], {1: "late"}, **extra), native=native)
        assert [row["dur_cycles"] for row in trace.spans.to_pylist()] == [4]
        assert trace.meta.losses.empty_slots == lost


def test_findings_about_regions_are_not_about_lives() -> None:
    """What remains is about blocks and SMs: there is no region that could be made faster."""
    trace = decoded(capture([[]] * 7, {}, **{AUTOMATIC: True}))
    found = findings(trace)
    below = [one for finding in found for one in (finding, *finding.consequences)]
    assert {"launch ramp", "unmarked time"} <= {finding.kind for finding in below}
    assert not [finding for finding in below if finding.region == LIFE]
    (one,) = summarise(trace, {"k": 1})
    assert (one.regions, one.records_per_warp, list(one.top), one.covered_least) == (0, 0.0, [], None)
