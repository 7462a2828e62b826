"""Modes, drift, the clock, and the rule that what cannot be measured is not claimed."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.duration_shapes import duration_shapes, find_modes
from warplens.analyse.findings import findings, profiling_cost
from warplens.analyse.sm_clock import sm_clock
from warplens.analyse.trace_quality import clock_line
from warplens.record.cost_keys import ALONE_CYCLES, RECORD_CYCLES
from warplens.trace.model import Trace
from warplens.trace.schema import ClockFit, Meta


def chain(durations: list[int], region: str = "load", warps: int = 1) -> Trace:
    """One region after another on a warp."""
    spans = []
    for warp in range(warps):
        at = 0
        for lasts in durations:
            spans.append(Span(region, at, lasts, warp=warp))
            at += lasts
    return make_trace(spans)


def test_two_speeds_are_found_with_their_centres() -> None:
    rng = np.random.default_rng(1)
    hits = rng.normal(300, 15, 700).astype(int)
    misses = rng.normal(900, 40, 300).astype(int)
    durations = np.concatenate([hits, misses])
    rng.shuffle(durations)
    trace = chain(durations.tolist())
    two = duration_shapes(trace)["kernel"]["load"].modes
    assert two is not None
    assert (two.fast, two.slow) == (pytest.approx(600, rel=0.02), pytest.approx(1800, rel=0.02))  # cycles, 2 per ns
    assert two.slow_share == pytest.approx(0.3, abs=0.01)
    found = next(one for one in findings(trace) if one.kind == "modes")
    assert "cache hit" in found.what
    assert found.gain == pytest.approx(0.3 * 600 / 480, abs=0.02)


@pytest.mark.parametrize("kind", ["normal", "lognormal", "uniform", "exponential", "constant", "two values close"])
def test_one_heap_is_not_two(kind: str) -> None:
    rng = np.random.default_rng(2)
    values = {
        "normal": rng.normal(1000, 200, 5000),
        "lognormal": rng.lognormal(6, 0.6, 5000),
        "uniform": rng.uniform(100, 1000, 5000),
        "exponential": 50 + rng.exponential(400, 5000),
        "constant": np.full(5000, 256.0),
        "two values close": rng.choice([1000.0, 1100.0], 5000),
    }[kind]
    assert find_modes(values.astype(np.int64)) is None


def test_slow_first_instances_and_drift() -> None:
    slow_start = duration_shapes(chain([5000] + [1000] * 99, warps=4))["kernel"]["load"]
    assert (slow_start.first, slow_start.later) == (10_000, 2000)
    assert slow_start.first_share == pytest.approx(4 / 104)
    growing = duration_shapes(chain([1000 + 2 * i for i in range(500)]))["kernel"]["load"]
    assert growing.drift > 0.3
    steady = duration_shapes(chain([1000 + (i * 7919) % 100 for i in range(500)]))["kernel"]["load"]
    assert steady.drift == 0.0
    assert not [one for one in findings(chain([1000] * 200)) if one.kind in ("drift", "modes", "outliers")]


def test_outliers_are_counted() -> None:
    shape = duration_shapes(chain([1000 + i % 50 for i in range(300)] + [90_000] * 2))["kernel"]["load"]
    assert shape.outliers == 2
    assert shape.worst == 180_000


def test_a_falling_clock_is_seen() -> None:
    """The same work of 1.9 million cycles: at 1900 MHz, then at 1500."""
    spans, at = [], 0
    for i in range(40):
        lasts = 10_000 if i < 20 else 12_667
        spans.append(Span("work", at, lasts, cycles=19_000))
        at += lasts
    trace = make_trace(spans)
    answer = sm_clock(trace)["kernel"]
    assert answer.mhz_min == pytest.approx(1500, rel=0.01)
    assert answer.mhz[0] == pytest.approx(1900, rel=0.01)
    found = next(one for one in findings(trace) if one.kind == "clock")
    assert "dropped to 1,500 MHz" in found.what
    assert not [one for one in findings(chain([10_000] * 40)) if one.kind == "clock"]


def test_rates_within_their_error_show_no_throttling() -> None:
    spans = [Span("work", 10_000 * i, 10_000, cycles=19_000 if i < 20 else 18_000) for i in range(40)]
    trace = make_trace(spans)
    assert [one.kind for one in findings(trace) if one.kind == "clock"] == ["clock"]
    for error, seen in ((10.0, 1), (60.0, 0)):
        unsure = Trace(trace.spans, replace(trace.meta, clock=replace(trace.meta.clock, mhz_error=error, mhz_max=1900)))
        assert len([one for one in findings(unsure) if one.kind == "clock"]) == seen
        assert f"error {error:.1f}" in clock_line(unsure)


def imbalanced(error_ns: float = 1.0, cost: dict[str, float] | None = None) -> Trace:
    """40 blocks of 1000 ns of which one takes 1400."""
    spans = [Span("work", 0, 1400 if block == 3 else 1000, block=block, sm=block) for block in range(40)]
    trace = make_trace(spans)
    launches = tuple(replace(info, cost=cost or {}) for info in trace.meta.launches)
    return Trace(trace.spans, replace(trace.meta, launches=launches, clock=ClockFit(residual_p99_ns=error_ns)))


def test_what_is_below_the_clock_error_is_withheld() -> None:
    sure = next(one for one in findings(imbalanced(1.0)) if one.kind == "imbalance")
    assert (sure.withheld, sure.gain_ns) == ("", pytest.approx(390))
    unsure = next(one for one in findings(imbalanced(500.0)) if one.kind == "imbalance")
    assert "within the clock alignment error of 500 ns" in unsure.withheld


def test_what_is_below_the_profilers_own_cost_is_withheld() -> None:
    held = next(one for one in findings(imbalanced(1.0, {"slowdown": 1.5})) if one.kind == "imbalance")
    assert "below the profiling overhead of 33.3 %" in held.withheld
    kept = next(one for one in findings(imbalanced(1.0, {"slowdown": 1.02})) if one.kind == "imbalance")
    assert not kept.withheld


def test_a_calibration_tells_the_cost_too() -> None:
    """40 spans, two records each of 300 cycles, in 80,800 cycles of warp time: 30 %, above the gain of 28 %."""
    held = next(one for one in findings(imbalanced(1.0, {RECORD_CYCLES: 300.0})) if one.kind == "imbalance")
    assert "below the profiling overhead of 29.7 %" in held.withheld
    assert profiling_cost(imbalanced(1.0, {RECORD_CYCLES: 10.0}), "kernel") == pytest.approx(800 / 80_800)
    unhidden = {RECORD_CYCLES: 0.0, ALONE_CYCLES: 20.0}
    assert profiling_cost(imbalanced(1.0, unhidden), "kernel") == pytest.approx(1600 / 80_800), "hidden cost counts"
    assert profiling_cost(imbalanced(), "kernel") is None


def test_withheld_findings_come_last_and_the_rest_by_gain() -> None:
    found = findings(imbalanced(30.0))
    reliable = [one for one in found if not one.withheld]
    assert found[: len(reliable)] == tuple(reliable)
    assert [one.rank for one in reliable] == sorted((one.rank for one in reliable), reverse=True)
    json.dumps([one.to_json() for one in found])


def test_kernels_are_ranked_by_what_they_cost_together() -> None:
    """The same loss in a kernel that takes ten times as long matters ten times as much."""
    spans = []
    for launch, (kernel, size) in enumerate([("small", 1000), ("large", 10_000)]):
        for block in range(16):
            lasts = size * 2 if block == 0 else size
            spans.append(Span("work", launch * 100_000, lasts, block=block, sm=block, launch=launch, kernel=kernel))
    found = [one for one in findings(make_trace(spans)) if one.kind == "imbalance" and not one.withheld]
    assert [one.kernel for one in found] == ["large", "small"]
    assert found[0].gain == pytest.approx(found[1].gain)


def test_an_empty_trace_has_no_findings() -> None:
    assert findings(make_trace([])) == ()
    assert findings(make_trace([Span("tick", 5, kind="instant")], meta=Meta())) == ()


def test_open_spans_and_instants_do_not_disturb() -> None:
    spans = [Span("work", 0, 1000), Span("tick", 10, kind="instant"), Span("hung", 1000, 10, open=True)]
    assert {shape.region for shape in duration_shapes(make_trace(spans))["kernel"].regions} == {"work"}
    findings(make_trace(spans))
