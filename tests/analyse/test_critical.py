"""The critical path: known answers, and what must hold for any trace."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import Span, make_trace
from warplens.analyse.critical_path import FASTER, CriticalPath, critical_path
from warplens.trace.model import Trace


def total(path: CriticalPath) -> float:
    return sum(region.ns for region in path.regions) + path.unmarked_ns + path.between_ns + path.launch_ns


def test_through_waits_to_the_producer() -> None:
    """Warp 1 works 100 after each load of 900; the loads are the path, all but the last work is hidden."""
    spans = []
    for i in range(10):
        spans.append(Span("load", i * 900, 900, warp=0))
        begin = 0 if i == 0 else i * 900 + 100
        spans.append(Span("wait", begin, (i + 1) * 900 - begin, warp=1))
        spans.append(Span("mma", (i + 1) * 900, 100, warp=1))
    path = critical_path(make_trace(spans))["kernel"]
    assert path.length_ns == 9100
    assert path["load"].ns == pytest.approx(9000)
    assert path["mma"].ns == pytest.approx(100)
    assert path["wait"].ns == pytest.approx(0)
    assert path["load"].gain[0.5] == pytest.approx(4500 / 9100)
    assert path["mma"].gain[0.5] == pytest.approx(50 / 9100)
    assert path["mma"].slack_ns == 0
    # At double speed of the loads the consumer's own work is still hidden; free loads leave 10 × 100 of it.
    assert path["load"].gain[1.0] == pytest.approx(1 - (9100 - 8100) / 9100, abs=0.02)
    assert [(step.warp, step.start_ns, step.end_ns) for step in path.steps] == [(0, 0, 9000), (1, 9000, 9100)]


def test_a_region_off_the_path_has_slack_and_gives_nothing() -> None:
    spans = [Span("work", 0, 1000, warp=0), Span("side", 0, 400, warp=1)]
    path = critical_path(make_trace(spans))["kernel"]
    assert path["work"].share == pytest.approx(1.0)
    assert path["side"].share == 0.0
    assert path["side"].slack_ns == pytest.approx(600)
    assert all(gain == 0 for gain in path["side"].gain.values())


def test_blocks_that_follow_each_other_on_an_sm_are_one_chain() -> None:
    """SM 0 runs two long blocks in a row; SM 1 one short one. Halving the long region halves the chain, until SM 1
    is what the kernel waits for."""
    spans = [
        Span("long", 0, 1000, block=0, sm=0),
        Span("long", 1010, 1000, block=2, sm=0),
        Span("short", 0, 1500, block=1, sm=1),
    ]
    path = critical_path(make_trace(spans))["kernel"]
    assert path.blocks == (0, 2)
    assert path["long"].ns == pytest.approx(2000)
    assert path.between_ns == pytest.approx(10)
    assert path["long"].gain[0.1] == pytest.approx(200 / 2010)
    assert path["long"].gain[1.0] == pytest.approx(510 / 2010)
    assert path["short"].slack_ns == pytest.approx(510)


def test_a_block_never_shrinks_below_its_busiest_warp() -> None:
    spans = [Span("fast", 0, 1000, warp=0), Span("steady", 0, 950, warp=1)]
    path = critical_path(make_trace(spans))["kernel"]
    assert path["fast"].gain[1.0] == pytest.approx(0.05)


def test_nested_and_unmarked_time_is_told_apart() -> None:
    spans = [Span("outer", 0, 600), Span("inner", 100, 200), Span("last", 700, 300)]
    path = critical_path(make_trace(spans))["kernel"]
    assert {one.region: one.ns for one in path.regions} == {"outer": 400, "inner": 200, "last": 300}
    assert path.unmarked_ns == pytest.approx(100)


@st.composite
def traces(draw: st.DrawFn) -> Trace:
    """Blocks in sequence on a few SMs, several warps each, of working, waiting and nested regions and gaps."""
    spans: list[Span] = []
    block = 0
    for launch in range(draw(st.integers(1, 2))):
        base = launch * 100_000
        for sm in range(draw(st.integers(1, 3))):
            at = base + draw(st.integers(0, 50))
            for _ in range(draw(st.integers(1, 3))):
                ends = []
                for warp in range(draw(st.integers(1, 3))):
                    now = at + draw(st.integers(0, 5))
                    for _ in range(draw(st.integers(1, 5))):
                        region = draw(st.sampled_from(["load", "mma", "wait", "other"]))
                        lasts = draw(st.integers(0, 200))
                        here = {"block": block, "warp": warp, "sm": sm, "launch": launch}
                        spans.append(Span(region, now, lasts, **here))
                        if lasts > 10 and draw(st.booleans()):
                            spans.append(Span("inner", now + 2, lasts // 2, **here))
                        now += lasts + draw(st.integers(0, 20))
                    ends.append(now)
                at = max(ends) + draw(st.integers(0, 30))
                block += 1
    return make_trace(spans)


@settings(max_examples=80, deadline=None)
@given(traces())
def test_what_must_hold_for_any_trace(trace: Trace) -> None:
    path = critical_path(trace)["kernel"]
    assert path.length_ns <= path.kernel_ns + 1e-6
    assert total(path) == pytest.approx(path.length_ns, abs=1e-3)
    longest = max(
        max(span.end for span in group) - min(span.start for span in group) for group in _tracks(trace).values()
    )
    assert path.longest_track_ns == longest
    if len(trace.meta.launches) == 1:
        assert path.length_ns >= longest
    for region in path.regions:
        gains = [0.0, *region.gain.values()]
        assert list(region.gain) == list(FASTER)
        assert all(later >= earlier - 1e-9 for earlier, later in pairwise(gains))
        assert all(gain <= share * region.share + 1e-6 for share, gain in region.gain.items())
        assert region.ns >= -1e-6
        assert region.slack_ns >= 0
    for before, after in pairwise(path.steps):
        assert before.end_ns <= after.start_ns + 1


def _tracks(trace: Trace) -> dict[int, list[Span]]:
    out: dict[int, list[Span]] = {}
    for track, start, dur in zip(*(trace.numpy(n).tolist() for n in ("track", "start_ns", "dur_ns")), strict=True):
        out.setdefault(track, []).append(Span("x", start, dur))
    return out
