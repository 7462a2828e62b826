"""Kernels that did not end: equal warps in groups, with the barrier they wait for and who has not arrived."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import warplens as wl
from tests.support.hanging_kernel import FULL, PRODUCER, Write, hung_capture, lost_arrival
from warplens.analyse.hang import Hang, hang_lines, hangs
from warplens.analyse.trace_quality import warnings_of
from warplens.commands import main
from warplens.decode import decode
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.record.capture import HANG
from warplens.record.layout import Kind
from warplens.record.running_tracks import HangRecord, pack_tracks
from warplens.record.track_writer import TrackWriter
from warplens.trace.model import Trace


def found(write: Write, **more: Any) -> Hang:
    (one,) = hangs(decode(hung_capture(write, **more)))
    return one


def test_the_warps_that_wait_are_one_group_and_the_one_they_wait_for_comes_first() -> None:
    hang = found(lost_arrival, blocks=131)
    lines = hang_lines(hang)
    assert lines[0] == "attn (launch 0) did not end after 1.5 s: 655 warps of 655 still running"
    assert lines[1].startswith("  warp 4 of blocks 0-130: in `produce` (attn.py:30) for 1.20 s")
    assert lines[1].endswith("last value `tile` = 17; others wait for it")
    assert lines[2].startswith("  warps 0-3 of blocks 0-130: in `wait full` (attn.py:42) for 1.20 s")
    assert lines[2].endswith("barrier 0x40 phase 1: warp 4 has not arrived")
    assert len(lines) == 3


def test_since_when_counts_from_the_begin_of_the_innermost_open_region() -> None:
    def nested(writer: TrackWriter, block: int, warp: int) -> None:
        writer.record(Kind.BEGIN, 4, 2000)
        writer.record(Kind.BEGIN, 2, 1000 + 700_000_000 * (block + 1))

    hang = found(nested, blocks=2, warps=1, after_ns=2_000_000_000)
    (group,) = hang.groups
    assert group.regions == ("loop", "produce")
    assert group.since_ns is not None
    assert abs(group.since_ns[0] - 600_000_000) < 1e6
    assert abs(group.since_ns[1] - 1_300_000_000) < 1e6
    assert "in `produce` (attn.py:30) inside `loop` for 600 ms to 1.30 s" in hang_lines(hang)[1]


def test_warps_that_are_in_a_region_for_much_longer_than_others_are_a_group_of_their_own() -> None:
    def busy(writer: TrackWriter, block: int, warp: int) -> None:
        writer.record(Kind.BEGIN, 2, 2000 if block == 3 else 1_999_000_000 - block)

    hang = found(busy, blocks=9, warps=2, after_ns=2_000_000_000)
    assert [group.overdue for group in hang.groups] == [True, False]
    lines = hang_lines(hang)
    assert lines[1].startswith("  warps 0-1 of block 3: in `produce` (attn.py:30) for 2.00 s")
    assert lines[2].startswith("  warps 0-1 of blocks 0-2, 4-8: in `produce` (attn.py:30) for 1.00 ms")


def test_a_producer_that_arrived_in_this_phase_is_not_missing() -> None:
    def arrived(writer: TrackWriter, block: int, warp: int) -> None:
        lost_arrival(writer, block, warp)
        if warp == PRODUCER:
            writer.barrier(2, 6000, BarrierWord(Operation.ARRIVE, FULL))

    waiting = [group for group in found(arrived, blocks=1).groups if group.wait]
    assert [group.wait.missing for group in waiting if group.wait] == [()]
    assert "all warps that are known to arrive there have arrived" in " ".join(hang_lines(found(arrived, blocks=1)))


def test_the_arrivers_of_a_barrier_are_learned_from_blocks_that_went_further() -> None:
    def first_phase(writer: TrackWriter, block: int, warp: int) -> None:
        if block == 0:
            lost_arrival(writer, block, warp)
        elif warp == PRODUCER:
            writer.record(Kind.BEGIN, 2, 2000)
        else:
            writer.record(Kind.BEGIN, 1, 1500)
            writer.barrier(1, 1500, BarrierWord(Operation.WAIT, FULL, 0))

    waits = {group.wait.phase: group.wait for group in found(first_phase).groups if group.wait}
    assert waits[0].missing == (PRODUCER,)
    assert waits[1].missing == (PRODUCER,)


def test_a_warp_that_ended_without_arriving_is_told() -> None:
    hang = found(lost_arrival, blocks=1, ended=lambda block, warp: warp == PRODUCER)
    assert hang.record.ended == 1
    assert hang_lines(hang)[1].endswith("barrier 0x40 phase 1: warp 4 has ended without arriving")


def test_a_named_barrier_names_the_warps_that_came_less_often() -> None:
    def diverged(writer: TrackWriter, block: int, warp: int) -> None:
        for step in range(2 if warp else 1):
            writer.record(Kind.BEGIN, 1, 2000 + 1000 * step)
            writer.barrier(1, 2000 + 1000 * step, BarrierWord(Operation.SYNC, 0))
            if not step:
                writer.record(Kind.END, 1, 2500)

    lines = hang_lines(found(diverged, blocks=1, warps=4))
    assert "warp 0 of block 0: outside all regions, after `wait full` (attn.py:42)" in lines[1]
    assert lines[2].startswith("  warps 1-3 of block 0: in `wait full`")
    assert lines[2].endswith("named barrier 0: warp 0 has not arrived")


def test_a_wait_that_has_ended_is_no_wait() -> None:
    def working(writer: TrackWriter, block: int, warp: int) -> None:
        writer.record(Kind.BEGIN, 1, 1500)
        writer.barrier(1, 1500, BarrierWord(Operation.WAIT, FULL, 0))
        writer.record(Kind.END, 1, 2400)
        writer.record(Kind.BEGIN, 2, 3000)

    (group,) = found(working, blocks=1, warps=1).groups
    assert group.wait is None
    assert group.regions == ("produce",)


def test_a_launch_whose_warps_have_not_started_blames_what_is_before_it() -> None:
    capture = hung_capture(lost_arrival, blocks=1)
    launch = capture.launches[0]
    nothing = HangRecord(unstarted=5, now_ns=5, waited_s=2.0, cause="watch")
    empty = launch.noting(raw=launch.raw * 0, extra={HANG: nothing.to_json()})
    trace = decode(replace(capture, launches=[empty]))
    assert "something before it on its stream did not end" in warnings_of(trace)[0]
    assert trace.findings()[0].kind == "hang"


def test_the_first_finding_is_the_hang_and_speed_is_not_judged() -> None:
    trace = decode(hung_capture(lost_arrival))
    (finding,) = trace.findings().supported
    assert finding.kind == "hang"
    assert finding.urgent
    assert finding.what.startswith("This kernel did not end.")
    assert (finding.region, finding.line) == ("produce", "attn.py:30")


def test_the_file_keeps_the_hang(tmp_path: Path) -> None:
    trace = decode(hung_capture(lost_arrival))
    trace.save(tmp_path / "hang.warplens")
    again = wl.load(tmp_path / "hang.warplens")
    assert warnings_of(again)[:3] == hang_lines(hangs(trace)[0])
    json.dumps([one.to_json() for one in hangs(again)])


def test_a_trace_of_launches_that_ended_has_no_hang() -> None:
    capture = hung_capture(lost_arrival, ended=lambda block, warp: True)
    ended = replace(capture, launches=[replace(capture.launches[0], extra={})])
    assert hangs(decode(ended)) == ()


def test_damaged_hang_records_are_read_without_an_error() -> None:
    trace = decode(hung_capture(lost_arrival, blocks=1))
    billions = {"0-99999999999": "0-99999999999"}
    for damage in (
        {"running": billions},
        {"running": [1]},
        {"now_ns": "x"},
        {"running": {"": "-"}},
        {"waited_s": None},
    ):
        infos = tuple(replace(info, extra={HANG: damage}) for info in trace.meta.launches)
        (one,) = hangs(Trace(trace.spans, replace(trace.meta, launches=infos)))
        assert one.running == 0
        assert hang_lines(one)


def test_tracks_are_packed_by_equal_warps() -> None:
    tracks = [(block, warp) for block in range(131) for warp in range(4)] + [(131, 2)]
    packed = pack_tracks(tracks)
    assert packed == {"0-3": "0-130", "2": "131"}
    assert HangRecord(packed).tracks() == sorted(tracks)


def test_the_report_and_info_say_it_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = decode(hung_capture(lost_arrival))
    trace.save(tmp_path / "hang.warplens")
    page = trace.report(tmp_path / "hang.html").read_text()
    assert "did not end after 1.5 s" in page
    for verb in ("info", "findings", "stats"):
        assert main([verb, str(tmp_path / "hang.warplens")]) == 0
        said = capsys.readouterr()
        assert "did not end after 1.5 s" in " ".join((said.out + said.err).split())
