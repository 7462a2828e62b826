"""Imbalance, waves and ramp on traces whose answer is known by construction."""

from __future__ import annotations

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.findings import findings
from warplens.analyse.imbalance import imbalance
from warplens.analyse.ramp import ramp
from warplens.analyse.waves import waves
from warplens.trace.model import Trace
from warplens.trace.schema import ClockFit, LaunchInfo, Meta


def grid(durations: list[int], sms: int, *, start: int = 0) -> Trace:
    """Blocks given to SMs as they come free, one block at a time on each."""
    free = [start] * sms
    spans = []
    for block, lasts in enumerate(durations):
        sm = free.index(min(free))
        spans.append(Span("work", free[sm], lasts, block=block, sm=sm))
        free[sm] += lasts
    meta = Meta(
        launches=(LaunchInfo(0, "kernel", grid=(len(durations), 1, 1), block=(32, 1, 1), end_ns=max(free)),),
        devices={"0": {"sm_count": sms}},
        clock=ClockFit(residual_p99_ns=9.0, method="anchors"),
    )
    return make_trace(spans, meta=meta)


def test_a_full_wave_has_no_idle_time() -> None:
    answer = waves(grid([1000] * 16, 8))["kernel"]
    assert (answer.waves, answer.slots, answer.idle, answer.tail, answer.quantised) == (2.0, 1, 0.0, 0.0, 0.0)
    assert answer.resident == pytest.approx([1.0] * 100)


def test_one_block_too_many_costs_almost_a_wave() -> None:
    trace = grid([100_000] * 17, 8)
    answer = waves(trace)["kernel"]
    assert answer.tail == pytest.approx(7 / 8 / 3)
    assert answer.quantised == pytest.approx(answer.tail)
    top = findings(trace)[0]
    assert top.kind == "last wave"
    assert top.gain.low < 7 / 24 <= top.gain.high
    assert "2.12 waves" in top.what
    assert "multiple of 8 blocks" in top.advice


def test_a_grid_smaller_than_the_device() -> None:
    trace = grid([100_000] * 3, 8)
    assert waves(trace)["kernel"].unused == pytest.approx(5 / 8)
    top = findings(trace)[0]
    assert top.kind == "too few blocks"
    assert top.gain.low < 5 / 8 <= top.gain.high
    assert "3 of 8 SMs" in top.what


def test_idle_time_splits_into_its_parts() -> None:
    spans = [Span("work", 100, 300, sm=0), Span("work", 500, 400, block=1, sm=0), Span("work", 200, 800, block=2, sm=1)]
    launch = LaunchInfo(0, "kernel", grid=(3, 1, 1), begin_ns=0, end_ns=1000)
    meta = Meta(launches=(launch,), devices={"0": {"sm_count": 4}})
    answer = waves(make_trace(spans, meta=meta))["kernel"]
    assert answer.unused == pytest.approx(0.5)
    assert answer.ramp == pytest.approx(300 / 4000)
    assert answer.gaps == pytest.approx(100 / 4000)
    assert answer.tail == pytest.approx(100 / 4000)
    assert answer.idle == pytest.approx(answer.unused + answer.ramp + answer.gaps + answer.tail)


def test_waves_are_withheld_when_blocks_are_missing() -> None:
    meta = Meta(launches=(LaunchInfo(0, "kernel", grid=(64, 1, 1), end_ns=100_000),), devices={"0": {"sm_count": 8}})
    trace = make_trace([Span("work", 0, 100_000, block=b, sm=b) for b in range(3)], meta=meta)
    found = findings(trace)
    assert "too few blocks" not in [one.kind for one in found]
    (held,) = [one for one in found.withheld if one.kind == "too few blocks"]
    assert "some blocks were not recorded" in held.withheld


def test_late_blocks_are_named_with_their_region() -> None:
    spans = []
    for block in range(64):
        extra = 300_000 if block in (5, 40) else 0
        spans.append(Span("load", 0, 50_000, block=block, sm=block))
        spans.append(Span("softmax", 50_000, 50_000 + extra, block=block, sm=block))
    trace = make_trace(spans)
    answer = imbalance(trace)["kernel"]
    assert set(answer.late_blocks) == {5, 40}
    assert answer.late_region == "softmax"
    top = findings(trace)[0]
    assert (top.kind, top.region, set(top.blocks)) == ("block imbalance", "softmax", {5, 40})
    assert top.gain.low < 0.75 * 62 / 64 <= top.gain.high


def test_the_busiest_warp_of_a_role_is_named() -> None:
    """Warps 1 to 3 share a job, warp 3 does twice of it; warp 0 loads and is no part of the comparison."""
    spans = []
    for block in range(8):
        spans.append(Span("load", 0, 10_000, block=block, warp=0, sm=block))
        for warp in (1, 2, 3):
            lasts = 80_000 if warp == 3 else 40_000
            spans.append(Span("mma", 0, lasts, block=block, warp=warp, sm=block))
            spans.append(Span("barrier_wait", lasts, 80_001 - lasts, block=block, warp=warp, sm=block))
    answer = imbalance(make_trace(spans))["kernel"]
    (role,) = answer.roles
    assert role.role.warps == (1, 2, 3)
    assert role.busiest == (3,)
    assert role.region == "mma"
    assert role.factor == pytest.approx(80 / (160 / 3))
    assert role.loss == pytest.approx((80_000 - 160_000 / 3) / 80_001)


def test_balanced_work_says_nothing() -> None:
    trace = grid([100_000] * 16, 8)
    assert [finding.kind for finding in findings(trace)] == ["nothing to fix"]


def test_slow_sms_are_named() -> None:
    spans = [
        Span("work", wave * 100_000, 90_000 if sm == 3 else 50_000, block=wave * 16 + sm, sm=sm)
        for wave in range(4)
        for sm in range(16)
    ]
    assert imbalance(make_trace(spans))["kernel"].slow_sms == (3,)


def test_ramp_counts_only_edges_that_no_other_block_hides() -> None:
    def block(number: int, at: int, sm: int) -> list[Span]:
        return [
            Span("setup", at, 10_000, block=number, sm=sm),
            Span("mma", at + 10_000, 60_000, block=number, sm=sm),
            Span("store", at + 70_000, 30_000, block=number, sm=sm),
        ]

    alone = ramp(make_trace(block(0, 0, 0) + block(1, 100_000, 0)))["kernel"]
    assert alone.useful == ("mma",)
    assert (alone.prologue, alone.epilogue) == (pytest.approx(0.1), pytest.approx(0.3))
    assert alone.exposed == pytest.approx(0.4)
    assert alone.to_first_ns == pytest.approx(10_000)
    # A second block per SM, half a block later: only the very edges of the launch stay exposed.
    hidden = ramp(make_trace(block(0, 0, 0) + block(1, 50_000, 0) + block(2, 100_000, 0)))["kernel"]
    assert hidden.exposed == pytest.approx((10_000 + 30_000) / 200_000)
