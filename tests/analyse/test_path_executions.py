"""How often a region is executed one after the other in a launch."""

from __future__ import annotations

from tests.support.builders import Span, make_trace
from warplens.analyse.path_executions import path_executions


def counts(spans: list[Span]) -> dict[str, int]:
    return path_executions(make_trace(spans))[0].counts


def test_warps_side_by_side_count_once_and_repeats_add_up() -> None:
    spans = [Span("work", 100 * i, 90, warp=warp) for warp in range(4) for i in range(5)]
    assert counts([*spans, Span("once", 600, 10, warp=2)]) == {"work": 5, "once": 1}


def test_blocks_that_follow_each_other_on_an_sm_add_up() -> None:
    spans = [
        Span("work", 1000 * wave, 900, block=block + 4 * wave, sm=block) for wave in range(3) for block in range(4)
    ]
    assert counts(spans) == {"work": 3}


def test_blocks_side_by_side_on_an_sm_do_not() -> None:
    spans = [Span("work", 1000 * wave, 900, block=block + 2 * wave, sm=0) for wave in range(2) for block in range(2)]
    assert counts(spans) == {"work": 2}


def test_a_region_of_blocks_that_end_early_is_counted_there() -> None:
    spans = [Span("long", 0, 900, block=0, sm=0), *(Span("short", 100 * i, 90, block=1, sm=1) for i in range(3))]
    assert counts(spans) == {"long": 1, "short": 3}


def test_each_launch_is_counted_alone_and_its_clock_is_known() -> None:
    spans = [Span("work", 10_000 * launch, 900, launch=launch) for launch in range(2)]
    found = path_executions(make_trace(spans))
    assert [one.counts for one in found] == [{"work": 1}, {"work": 1}]
    assert all(one.cycles_per_ns > 0 for one in found)
    assert path_executions(make_trace([])) == []
