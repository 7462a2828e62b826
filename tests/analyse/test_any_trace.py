"""What must hold for every trace: no analysis fails, shares are shares, and JSON is JSON."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import example, given, settings

from tests.support.any_trace import any_trace
from tests.support.builders import Span, make_trace
from warplens.analyse.critical_path import critical_path
from warplens.analyse.diff import ChangeVerdict, diff
from warplens.analyse.duration_shapes import duration_shapes
from warplens.analyse.findings import findings
from warplens.analyse.imbalance import imbalance
from warplens.analyse.occupancy import achieved
from warplens.analyse.overlap import overlap
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.ramp import ramp
from warplens.analyse.region_tree import region_tree
from warplens.analyse.sm_clock import sm_clock
from warplens.analyse.waits import waits
from warplens.analyse.waves import waves
from warplens.trace.model import Trace

ANALYSES = (imbalance, waves, overlap, waits, critical_path, ramp, duration_shapes, sm_clock, achieved)


def stepped_back(cycles: int) -> Trace:
    """Two blocks; in the first, loads and work begin before the track's first record, as when a clock steps back."""
    rounds = [Span(name, 20 * n + at, 5) for n in range(4) for name, at in (("load", 0), ("mma", 5))]
    return make_trace([Span("x", cycles, 0), *rounds, Span("x", 0, 60, block=1)])


@settings(max_examples=40, deadline=None)
@given(any_trace())
@example(stepped_back(10))
@example(stepped_back(5000))
def test_findings_of_any_trace(trace: Trace) -> None:
    for one in findings(trace):
        assert 0 <= one.gain.low <= one.gain.high <= 1
        assert one.what
        assert one.advice
        assert one.kernel.partition("[")[0] in trace.kernels
        json.dumps(one.to_json(), allow_nan=False)
    for root in region_tree(trace):
        for _, node in root.walk():
            assert 0 <= node.exclusive <= node.cycles
    assert not {one.verdict for one in diff(trace, trace)} & {
        ChangeVerdict.FASTER,
        ChangeVerdict.SLOWER,
        ChangeVerdict.NEW,
    }


@settings(max_examples=20, deadline=None)
@given(any_trace())
@example(stepped_back(10))
@example(stepped_back(5000))
def test_shares_of_any_trace(trace: Trace) -> None:
    for kernel, one in waves(trace).kernels.items():
        assert one.idle == pytest.approx(one.unused + one.ramp + one.gaps + one.tail, abs=1e-6), kernel
        assert 0 <= one.quantised <= one.tail + one.unused + 1e-9
    for together in overlap(trace).kernels.values():
        for region in together.regions:
            assert 0 <= region.alone <= region.active + 1e-9
            assert region.exposed <= region.active + 1e-9
    for waiting in waits(trace).kernels.values():
        for region in waiting.regions:
            assert sum(region.waits_for.values()) == pytest.approx(1.0)
    for analyse in ANALYSES:
        _finite(json.loads(json.dumps(analyse(trace).to_json(), allow_nan=False)))


def _finite(value: Any) -> None:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for inner in value:
            _finite(inner)
    elif isinstance(value, float):
        assert math.isfinite(value)


@pytest.mark.parametrize("analyse", ANALYSES)
@pytest.mark.parametrize("spans", [[], [Span("tick", 5, kind="instant")], [Span("x", 5, 0)]])
def test_nothing_to_analyse(analyse: Any, spans: list[Span]) -> None:
    assert isinstance(analyse(make_trace(spans)), PerKernel)
