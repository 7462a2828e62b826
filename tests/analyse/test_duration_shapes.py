"""How durations vary: two modes, slow first instances, drift and outliers, on durations made for it."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.duration_shapes import duration_shapes, find_modes
from warplens.trace.model import Trace


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
    assert two.within_warps == pytest.approx(1.0, abs=0.02)


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


def test_outliers_are_counted() -> None:
    shape = duration_shapes(chain([1000 + i % 50 for i in range(300)] + [90_000] * 2))["kernel"]["load"]
    assert shape.outliers == 2
    assert shape.worst == 180_000


def test_warps_that_are_slow_throughout_differ_between_warps_not_within() -> None:
    spans = [Span("load", 900 * at, 300 if warp < 4 else 900, warp=warp) for warp in range(8) for at in range(20)]
    two = duration_shapes(make_trace(spans))["kernel"]["load"].modes
    assert two is not None
    assert two.within_warps == pytest.approx(0.0)


def test_open_spans_and_instants_do_not_disturb() -> None:
    spans = [Span("work", 0, 1000), Span("tick", 10, kind="instant"), Span("hung", 1000, 10, open=True)]
    assert {shape.region for shape in duration_shapes(make_trace(spans))["kernel"].regions} == {"work"}
