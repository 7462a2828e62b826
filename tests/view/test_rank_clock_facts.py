"""The bound on the clocks of ranks is shown wherever times of several ranks are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from tests.support.late_job import late_job
from warplens.analyse.trace_quality import rank_line
from warplens.commands import main
from warplens.trace.model import Trace
from warplens.view.notebook import trace_html

BOUND = "2.00 µs"


@pytest.fixture
def trace() -> Trace:
    return late_job({2: {"softmax": 40_000}})


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run a verb of the command line, and return what it printed, in one line."""
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: str) -> str:
        capsys.readouterr()
        assert main(list(words)) == 0
        return " ".join(capsys.readouterr().out.split())

    return call


def test_info_shows_the_bound_and_json_that_of_each_pair(trace: Trace, tmp_path: Path, run: Callable[..., str]) -> None:
    path = str(trace.save(tmp_path / "t.warplens"))
    assert f"{BOUND} at most" in run("info", path)
    clocks = json.loads(run("info", path, "--json"))["meta"]["rank_clocks"]
    assert clocks["bounds_ns"][0] == [0.0, 2000.0, 2000.0, 2000.0]
    assert clocks["calls"] == 32


def test_views_show_the_bound(trace: Trace, tmp_path: Path, run: Callable[..., str]) -> None:
    path = str(trace.save(tmp_path / "t.warplens"))
    assert BOUND in run("view", "--terminal", path)
    assert BOUND in trace_html(trace)
    page = trace.report(tmp_path / "t.html").read_text()
    assert "between ranks" in page
    assert f"± {BOUND}" in page
    events = json.loads(trace.export(tmp_path / "t.json").read_text())["traceEvents"]
    assert {2000.0} == {one["args"]["rank_clock_bound_ns"] for one in events if "grid" in one.get("args", {})}


def test_stats_and_findings_name_the_late_rank(trace: Trace, tmp_path: Path, run: Callable[..., str]) -> None:
    path = str(trace.save(tmp_path / "t.warplens"))
    said = run("findings", path)
    assert "late rank" in said
    assert "Rank 2 is late" in said
    assert "attn, region softmax" in run("stats", path, "--show", "lateness")
    document = json.loads(run("stats", path, "--show", "rank-path", "--show", "skew", "--json"))["analyses"]
    assert list(document["rank-path"]["all ranks"]["ranks"]) == ["2"]
    assert document["skew"]["other"]["last_rank"] == 2


def test_ranks_whose_clocks_were_not_compared_are_said_to_be_so() -> None:
    spans = [Span("load", 0, 10, rank=rank) for rank in range(2)]
    assert "not compared" in rank_line(make_trace(spans))
    assert rank_line(make_trace(spans[:1])) == ""
