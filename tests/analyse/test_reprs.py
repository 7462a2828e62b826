"""What a person sees in a Python prompt: the answer, not the fields that hold it."""

from __future__ import annotations

import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.paths import ROOT
from warplens.errors import UsageError

CAPTURE = ROOT / "tests" / "golden" / "captures" / "triton_matmul.wlcap"


def test_findings_print_as_a_list_of_causes_and_gains() -> None:
    lines = repr(wl.load(CAPTURE).findings()).splitlines()
    assert lines[0].startswith("1. too few blocks in matmul: saves 79.9 to 98.5 % (")
    assert lines[0].endswith("confidence high")
    assert lines[-1].startswith("undecided: ")
    assert repr(make_trace([]).findings()) == "no findings"


def test_a_difference_prints_its_verdicts() -> None:
    trace = wl.load(CAPTURE)
    kernel, *regions = repr(wl.diff(trace, trace)).splitlines()
    assert kernel == "matmul: 6.00 µs -> 6.00 µs SAME"
    assert "  dot: SAME +0.0% cycles" in regions
    assert "np.float64" not in repr(wl.diff(trace, trace).kernels[0])


def test_printed_statistics_round_as_the_command_does() -> None:
    trace = make_trace([Span("load", 0, 15, cycles=30), Span("load", 20, 15, cycles=31)])
    assert trace.stats()["load"].p50 == 30.5
    assert repr(trace.stats()).splitlines()[1].split()[5] == "31"


def test_a_profile_says_where_it_writes_and_whether_it_has_a_trace() -> None:
    assert repr(wl.profile("x.warplens")).endswith("/x.warplens': no trace yet>")
    assert repr(wl.profile()) == "<warplens.profile: no trace yet>"


def test_a_comparison_of_something_else_is_refused() -> None:
    with pytest.raises(UsageError, match=r"after='t.warplens': expected a trace; wl.load"):
        wl.diff(wl.load(CAPTURE), "t.warplens")  # type: ignore[arg-type]
