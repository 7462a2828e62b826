"""Values and instants in the statistics, per kernel variant."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from warplens.commands import main
from warplens.trace.model import Trace


def recorded() -> Trace:
    spans = [Span("work", 0, 1000)]
    spans += [Span("sum", at, kind="value", value=float(at)) for at in (1, 2, 6)]
    spans += [Span("sum", 9, kind="value", value=float("nan")), Span("tick", 10, kind="instant")]
    spans += [Span("sum", 2000, kind="value", value=100.0, launch=1, kernel="other")]
    return make_trace(spans)


def test_values_and_instants_are_counted_and_summarised() -> None:
    found = {(one.kernel, one.name): one for one in recorded().stats().values}
    one = found["kernel", "sum"]
    assert (one.kind, one.count, one.not_finite) == ("value", 4, 1)
    assert (one.mean, one.p50, one.min, one.max) == (3.0, 2.0, 1.0, 6.0)
    assert found["other", "sum"].mean == 100.0, "kernels are apart"
    assert (found["kernel", "tick"].kind, found["kernel", "tick"].mean) == ("instant", None)
    assert make_trace([Span("work", 0, 10)]).stats().values == ()


def test_the_command_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    recorded().save(tmp_path / "t.warplens")
    assert main(["stats", str(tmp_path / "t.warplens")]) == 0
    out = capsys.readouterr().out
    assert "values and instants" in out
    assert "NaN or Inf" in out
    assert main(["stats", str(tmp_path / "t.warplens"), "--json"]) == 0
    values = json.loads(capsys.readouterr().out)["values"]
    assert {one["name"] for one in values} == {"sum", "tick"}


def test_values_whose_squares_and_sums_do_not_fit_a_double_have_statistics() -> None:
    values = (1.5e308, 1.5e308, -1.5e308, 1.5e308)
    spans = [Span("work", 0, 1000), *(Span("sum", at, kind="value", value=one) for at, one in enumerate(values))]
    (one,) = make_trace(spans).stats().values
    assert (one.min, one.max, one.p50) == (-1.5e308, 1.5e308, 1.5e308)
    assert one.mean == pytest.approx(0.75e308)
    assert one.std == pytest.approx(1.5e308 * 0.75**0.5)
