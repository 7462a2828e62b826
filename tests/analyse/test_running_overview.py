"""The overview of a running program: exact sums in a bounded number of bins."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse import running_overview
from warplens.analyse.running_overview import BINS, FIRST_BIN_NS, OTHERS, RunningOverview


def add(overview: RunningOverview, *spans: Span, since: int = 0, now: int) -> None:
    trace = make_trace(list(spans))
    origin = trace.meta.origin_ns
    overview.add(trace, np.array([since + origin] * len(trace.meta.launches)), now + origin)


def total(overview: RunningOverview, region: str) -> float:
    return float(overview.time[region].sum())


def test_time_is_counted_once_and_only_after_what_was_counted_before() -> None:
    overview = RunningOverview()
    unit = FIRST_BIN_NS
    add(overview, Span("load", 0, unit), Span("mma", unit, 3 * unit), now=2 * unit)
    assert (total(overview, "load"), total(overview, "mma")) == (unit, unit), "what lies ahead is not there yet"
    add(overview, Span("load", 0, unit), Span("mma", unit, 3 * unit), since=2 * unit, now=4 * unit)
    assert (total(overview, "load"), total(overview, "mma")) == (unit, 3 * unit)
    assert overview.warps()["mma"].tolist() == [0, 1, 1, 1]


def test_bins_become_coarser_and_lose_nothing() -> None:
    overview = RunningOverview()
    for step in range(8):
        begin = step * BINS * FIRST_BIN_NS // 2
        add(overview, Span("first", 0, 1), Span("load", begin, FIRST_BIN_NS), since=begin, now=begin + FIRST_BIN_NS)
    assert len(overview.time["load"]) == BINS
    assert overview.bin_ns == 4 * FIRST_BIN_NS
    assert total(overview, "load") == pytest.approx(8 * FIRST_BIN_NS)
    assert np.count_nonzero(overview.time["load"]) == 8


def test_regions_beyond_the_limit_share_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running_overview, "MOST_REGIONS", 3)
    overview = RunningOverview()
    add(overview, *(Span(f"r{at}", at * 100, 100) for at in range(5)), now=500)
    assert list(overview.time) == ["r0", "r1", OTHERS]
    assert total(overview, OTHERS) == pytest.approx(300)
