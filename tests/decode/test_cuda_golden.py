"""Captures that a real H200 made (`WARPLENS_GOLDEN_OUT=... pytest tests/gpu/test_cuda.py`; cuda_barrier_timer by
`benchmarks/placement.py --release timer --golden ...`): they decode to what the kernels did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.support.shim_records import SLOTS_PER_STEP, step, tracks
from warplens.decode import decode
from warplens.record.capture import Launch, read_capture
from warplens.record.layout import TrackState
from warplens.trace.model import Trace

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def golden(name: str) -> tuple[Launch, Trace]:
    capture = read_capture(GOLDEN / f"cuda_{name}.wlcap")
    assert (capture.device.name, capture.device.sm_count) == ("NVIDIA H200", 132)
    return capture.launches[0], decode(capture)


def spans(trace: Trace) -> list[dict[str, Any]]:
    return list(trace.spans.to_pylist())


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("cuda_*.wlcap")), ids=lambda path: path.stem)
def test_both_decoders_place_every_row_within_its_warps_life_and_state_a_small_error(path: Path) -> None:
    capture = read_capture(path)
    fast, plain = decode(capture), decode(capture, native=False)
    assert fast.spans.equals(plain.spans)
    assert fast.meta == plain.meta
    assert len(fast) > 0
    assert fast.meta.clock.step_ns % 32 == 0, "the timer's step, or a multiple of it where anchors are few"
    assert fast.meta.clock.residual_max_ns <= 64
    info = fast.meta.launches[0]
    start, length = fast.numpy("start_ns"), fast.numpy("dur_ns")
    assert start.min() == 0, "times count from the first record"
    assert (start >= info.begin_ns).all()
    if not fast.meta.losses.tracks_without_exit:
        assert (start + length <= info.end_ns + 1).all()
    assert not fast.meta.losses.unknown_regions, "every region's name came along"
    assert set(fast.meta.locations) <= set(capture.launches[0].regions.values())


def test_nested_regions_values_and_instants_of_a_clean_launch() -> None:
    launch, trace = golden("nested_stop_200")
    assert trace.meta.losses.clean
    rows = spans(trace)
    one_step = ["step", "inner", "manual", "tick", "index", "half"]
    assert [row["region"] for row in rows] == one_step * 3 * 8
    assert [row["depth"] for row in rows[:6]] == [0, 1, 1, 2, 2, 2]
    for first in range(0, len(rows), 6):
        whole, inner, manual = rows[first : first + 3]
        assert inner["parent"] == manual["parent"] == first
        assert whole["dur_cycles"] > manual["dur_cycles"] > inner["dur_cycles"] > 0
        assert whole["start_cycle"] + whole["dur_cycles"] >= manual["start_cycle"] + manual["dur_cycles"]
        assert [row["parent"] for row in rows[first + 3 : first + 6]] == [first + 2] * 3
        number = first // 6 % 3
        assert [row["value"] for row in rows[first + 4 : first + 6]] == [number, 0.5 * number]
    assert trace.meta.locations["step"] == "tests/shim/kernels.cu:9"
    assert 1900 < trace.meta.clock.mhz_mean < 2050
    assert launch.full == "stop"


def test_a_ring_keeps_the_latest_records_and_counts_the_one_each_track_lost() -> None:
    launch, trace = golden("nested_ring_32")
    losses = trace.meta.losses
    assert (losses.records_written, losses.records_lost, losses.tracks_full) == (8 * 3 * SLOTS_PER_STEP, 8, 8)
    assert losses.orphan_ends == 8, "the step whose begin was overwritten"
    everything = [line for i in range(3) for line in step(i)]
    for _, lines in tracks(launch):
        assert lines == everything[1:]


def test_warps_that_returned_early_leave_their_region_open_and_nothing_else() -> None:
    _, trace = golden("early_stop_200")
    opened = [(row["block"], row["warp"]) for row in spans(trace) if row["open"]]
    assert opened == [(0, 0), (1, 0)]
    assert trace.meta.losses.open_spans == trace.meta.losses.mismatched_ends == 2
    assert trace.meta.losses.records_lost == trace.meta.losses.tracks_without_exit == 0


def test_diverged_lanes_are_recorded_by_lane_0_alone() -> None:
    _, trace = golden("diverge_stop_200")
    assert trace.meta.losses.clean
    assert [row["region"] for row in spans(trace)] == ["both", "lane 0", "after"] * 4


def test_a_warp_that_left_in_the_middle_of_a_region_is_counted_not_invented() -> None:
    launch, trace = golden("leaves_stop_200")
    assert [int(head["state"]) for head, _ in tracks(launch)] == [TrackState.EXITED, TrackState.RUNNING]
    assert trace.meta.losses.tracks_without_exit == trace.meta.losses.open_spans == 1
    assert [(row["warp"], row["region"], row["open"]) for row in spans(trace)] == [
        (0, "first", False),
        (0, "never ended", False),
        (1, "first", False),
        (1, "never ended", True),
    ]


def test_producers_and_consumers_take_turns() -> None:
    _, trace = golden("specialised_stop_400")
    assert trace.meta.losses.clean
    rows = spans(trace)
    roles = {row["region"]: {r["warp"] // 4 for r in rows if r["region"] == row["region"]} for row in rows}
    assert roles == {"acquire": {0}, "produce": {0}, "publish": {0}, "wait": {1, 2}, "consume": {1, 2}}
    for block in (0, 1):
        clock: dict[tuple[str, int], list[int]] = {}
        for row in rows:
            if row["block"] == block:
                clock.setdefault((row["region"], row["warp"]), []).append(int(row["start_cycle"]))
        published = np.array([clock["publish", warp] for warp in range(4)]).max(axis=0)
        for warp in range(4, 12):
            assert (np.array(clock["consume", warp]) > published).all(), (
                "one SM, one clock: nothing is consumed too early"
            )


def test_a_region_around_a_barrier_ends_after_the_barrier() -> None:
    _, trace = golden("specialised_stop_400")
    rows = [row for row in spans(trace) if row["block"] == 0]
    arrived = [row["start_cycle"] for row in rows if (row["warp"], row["region"]) == (0, "publish")]
    passed = [row["start_cycle"] + row["dur_cycles"] for row in rows if (row["warp"], row["region"]) == (4, "wait")]
    assert all(after > before for after, before in zip(passed, arrived, strict=True))


def test_a_wait_at_a_barrier_is_as_long_as_the_other_warp_was_late() -> None:
    """4000 cycles apart; read right behind the barrier, the clock would say that nobody waited."""
    _, trace = golden("late_stop_200")
    for row in spans(trace):
        assert (3900 < row["dur_cycles"] < 4200) if row["warp"] == 0 else row["dur_cycles"] < 100, row


def test_blocks_of_a_cluster_wait_for_the_later_one_of_each_pair() -> None:
    """Eight blocks in clusters of two; the odd one of each comes 6000 cycles late to the cluster's barrier."""
    _, trace = golden("exchange_stop_200")
    assert trace.meta.losses.clean
    rows = spans(trace)
    assert [(row["block"], row["warp"], row["region"]) for row in rows] == [
        (block, warp, region) for block in range(8) for warp in range(2) for region in ("meet", "read")
    ]
    for row in rows:
        if row["region"] == "meet":
            assert (5500 < row["dur_cycles"] < 7000) if row["block"] % 2 == 0 else row["dur_cycles"] < 1000, row


def test_async_copies_and_loop_indices_with_anchors() -> None:
    _, trace = golden("async_copy_stop_200")
    assert trace.meta.losses.clean
    assert trace.meta.clock.anchors == 4 * (2 + 3)
    assert trace.meta.clock.residual_max_ns < 20, "anchors inside the track read both clocks side by side"
    rows = [row for row in spans(trace) if row["track"] == 0]
    copies = [row for row in rows if row["region"] == "copy"]
    assert len(copies) == 3
    assert max(row["start_cycle"] for row in copies) < min(row["start_cycle"] + row["dur_cycles"] for row in copies)
    assert [row["value"] for row in rows if row["region"] == "round"] == list(range(65))


def test_every_thread_has_its_own_track() -> None:
    _, trace = golden("by_thread_stop_200")
    who = {(row["block"], row["warp"], row["lane"]) for row in spans(trace)}
    assert who == {(b, w, lane) for b in (0, 1) for w in (0, 1) for lane in range(32)}


def passed(launch: Launch, trace: Trace) -> npt.NDArray[np.int64]:
    """When each SM's first warp passed each of five barriers; their 64-bit clocks are millions of cycles apart."""
    assert (trace.meta.clock.sms, trace.meta.clock.clocks, trace.meta.losses.clean) == (132, 8, True)
    clocks = [int(head["start_clock"]) for head, _ in tracks(launch)]
    assert max(clocks) - min(clocks) > 100_000
    start, sm = trace.numpy("start_ns").reshape(-1, 5), trace.numpy("sm").reshape(-1, 5)[:, 0]
    return np.array([start[sm == number].min(axis=0) for number in np.unique(sm)])


def test_instants_after_a_barrier_that_lets_all_sms_go_at_once_land_within_the_stated_error() -> None:
    """The last to arrive names a time and everybody leaves when the timer shows it, so what is left is the fit's."""
    launch, trace = golden("barrier_timer")
    first, stated = passed(launch, trace), trace.meta.clock
    spread = np.ptp(first, axis=0)
    assert spread.max() <= 150, "the bar"
    assert spread.max() <= 2 * stated.residual_p99_ns, "each within the stated p99 of one moment"
    assert spread.max() <= stated.residual_max_ns, "even two SMs are no further apart than one moment's error"
    assert stated.residual_max_ns < 32 == stated.step_ns, "the timer's step"
    assert np.diff(np.median(first, axis=0)).min() > 4000, "five rounds: each names a time 4 µs ahead"


def test_all_sms_agree_on_when_they_passed_a_barrier() -> None:
    """A barrier whose release travels: what is left after the fit is its own propagation."""
    launch, trace = golden("barrier_stop_15")
    assert trace.meta.clock.residual_p99_ns < 32
    first = passed(launch, trace)
    middle = np.median(first, axis=0)
    assert np.abs(first - middle).max() <= 250
    assert np.median(np.abs(first - middle)) <= 75
    assert np.ptp((first - middle).mean(axis=1)) <= 150, "no SM is systematically early or late by more"
