"""Overlap, waits and pipelines on traces whose answer is known, and overlap against a cycle-by-cycle count."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import Span, make_trace
from warplens.analyse.findings import findings
from warplens.analyse.intervals import union
from warplens.analyse.overlap import overlap
from warplens.analyse.region_purpose import Purpose, purpose_of
from warplens.analyse.waits import UNMARKED, waits
from warplens.trace.model import Trace


def serial(rounds: int = 20, load: int = 6000, mma: int = 4000) -> Trace:
    """One warp per SM that loads, then works, and never both."""
    spans = []
    for sm in range(4):
        for i in range(rounds):
            at = i * (load + mma)
            spans.append(Span("load", at, load, block=sm, sm=sm))
            spans.append(Span("mma", at + load, mma, block=sm, sm=sm))
    return make_trace(spans)


def test_serial_loads_are_exposed_and_top_the_findings() -> None:
    answer = overlap(serial())["kernel"]
    assert answer["load"].active == pytest.approx(0.6)
    assert answer["load"].exposed == pytest.approx(0.6)
    assert (answer.memory_exposed, answer.work_exposed, answer.hidden) == (pytest.approx(0.6), pytest.approx(0.4), 0.0)
    assert answer.pipeline is not None
    assert answer.pipeline.mean == pytest.approx(1.0)
    top = findings(serial())[0]
    assert (top.kind, top.region) == ("too little in flight", "load")
    assert top.gain.low < 0.4 <= top.gain.high


def test_hidden_loads_are_no_finding() -> None:
    """A second warp loads while the first works."""
    spans = []
    for i in range(20):
        spans.append(Span("load", i * 10_000, 6000, warp=0))
        spans.append(Span("mma", i * 10_000 + 100, 9900, warp=1))
    answer = overlap(make_trace(spans))["kernel"]
    assert answer.hidden == pytest.approx(5900 / 6000, abs=1e-3)
    assert answer["load"].exposed == pytest.approx(100 / 10_000, rel=0.01)
    refuted = {one.kind: one.what for one in findings(make_trace(spans)).refuted}
    assert "for 1.0 % of the SM time memory is fetched" in refuted["too little in flight"]


def test_pipeline_depth_counts_loads_ahead_of_work() -> None:
    """Three loads are issued before the first work; then one load after each work."""
    spans, at = [], 0
    for _ in range(3):
        spans.append(Span("load", at, 10))
        at += 10
    for i in range(30):
        spans.append(Span("mma", at, 100))
        at += 100
        if i < 27:
            spans.append(Span("load", at, 10))
            at += 10
    answer = overlap(make_trace(spans))["kernel"]
    assert answer.pipeline is not None
    assert answer.pipeline.most == pytest.approx(3.0)
    assert answer.pipeline.mean == pytest.approx((28 * 3 + 2 + 1) / 30)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_overlap_equals_counting_every_cycle(data: st.DataObject) -> None:
    """Random nested spans on several warps of two SMs; asynchronous ones (depth given) outlive their parents."""
    names = ["load", "mma", "wait", "outer", "copy"]
    spans: list[Span] = []
    held: dict[int, dict[int, set[str]]] = {0: {}, 1: {}}
    for warp in range(data.draw(st.integers(1, 4))):
        sm = warp % 2
        at = 0
        for _ in range(data.draw(st.integers(1, 5))):
            at += data.draw(st.integers(0, 5))
            length = data.draw(st.integers(1, 12))
            outer = data.draw(st.sampled_from(names))
            spans.append(Span(outer, at, length, block=sm, warp=warp, sm=sm, depth=0))
            cuts = sorted(data.draw(st.lists(st.integers(at, at + length), min_size=4, max_size=4)))
            own = set(range(at, at + length))
            for low, high in ((cuts[0], cuts[1]), (cuts[2], cuts[3])):
                inner = data.draw(st.sampled_from(names))
                spans.append(Span(inner, low, high - low, block=sm, warp=warp, sm=sm, depth=1))
                own -= set(range(low, high))
                for tick in range(low, high):
                    held[sm].setdefault(tick, set()).add(inner)
            for tick in own:
                held[sm].setdefault(tick, set()).add(outer)
            at += length
    trace = make_trace(spans)
    answer = overlap(trace)["kernel"]
    whole = (trace.meta.launches[0].end_ns - trace.meta.launches[0].begin_ns) * len({span.sm for span in spans})
    moments = [moment for each in held.values() for moment in each.values()]
    for i, one in enumerate(answer.regions):
        with_one = [moment for moment in moments if one.region in moment]
        assert one.active * whole == pytest.approx(len(with_one))
        assert one.alone * whole == pytest.approx(sum(len(moment) == 1 for moment in with_one))
        hidden = [any(purpose_of(name) is not Purpose.WAIT for name in moment - {one.region}) for moment in with_one]
        assert one.exposed * whole == pytest.approx(hidden.count(False))
        for j, two in enumerate(answer.regions):
            both = sum(two.region in moment for moment in with_one)
            assert answer.together[i][j] * whole == pytest.approx(both)
    assert answer.waiting * whole == pytest.approx(sum(moment == {"wait"} for moment in moments))


@given(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)), max_size=12))
def test_union_is_the_set_of_covered_ticks(pairs: list[tuple[int, int]]) -> None:
    starts = np.array([start for start, _ in pairs], np.int64)
    ends = starts + np.array([length for _, length in pairs], np.int64)
    begin, end = union(starts, ends)
    ticks = {tick for low, high in zip(begin.tolist(), end.tolist(), strict=True) for tick in range(low, high)}
    assert ticks == {tick for start, length in pairs for tick in range(start, start + length)}
    assert (begin[1:] > end[:-1]).all()


def handoff(rounds: int = 20, load: int = 8000, mma: int = 2000, keyed: bool = False) -> Trace:
    """Warp 0 loads without pause; warp 1 waits for each load, then works: the consumer starves."""
    spans = []
    for block in range(4):
        here = {"block": block, "sm": block}
        for i in range(rounds):
            at = i * load
            spans.append(Span("load", at, load, warp=0, **here))
            begin = at if i == 0 else at + mma + 10
            spans.append(Span("wait_full", begin, at + load + 10 - begin, warp=1, **here))
            if keyed:
                spans.insert(-1, Span("stage", at + 1, kind="value", value=i, warp=0, **here))
                spans.append(Span("stage", begin + 1, kind="value", value=i, warp=1, **here))
            spans.append(Span("mma", at + load + 10, mma, warp=1, **here))
    spans.sort(key=lambda span: (span.block, span.warp, span.start))
    return make_trace(spans)


@pytest.mark.parametrize("keyed", [False, True])
def test_waits_find_their_producer(keyed: bool) -> None:
    answer = waits(handoff(keyed=keyed))["kernel"]
    (region,) = answer.regions
    assert region.region == "wait_full"
    assert next(iter(region.waits_for.items())) == ("load", pytest.approx(1.0))
    assert region.by_key == (1.0 if keyed else 0.0)
    assert answer.producer == 0.0
    assert answer.consumer == pytest.approx(0.75, abs=0.05)
    assert {each.side: each.role.warps for each in answer.roles} == {"producer": (0,), "consumer": (1,)}


def test_keys_beat_time() -> None:
    """An unrelated span ends inside the wait, later than the producer that carries the wait's stage."""
    spans = [
        Span("load", 0, 500, warp=0),
        Span("stage", 10, kind="value", value=7, warp=0),
        Span("wait", 100, 800, warp=1),
        Span("stage", 110, kind="value", value=7, warp=1),
        Span("other", 0, 800, warp=2),
    ]
    assert list(waits(make_trace(spans))["kernel"].regions[0].waits_for) == ["load"]
    without = [span for span in spans if span.kind == "span"]
    assert list(waits(make_trace(without))["kernel"].regions[0].waits_for) == ["other"]


def test_a_wait_during_which_nobody_finished_is_not_blamed_on_anyone() -> None:
    spans = [Span("load", 0, 50, warp=0), Span("wait", 100, 800, warp=1), Span("mma", 900, 50, warp=0)]
    assert list(waits(make_trace(spans))["kernel"].regions[0].waits_for) == [UNMARKED]


def test_when_all_warps_wait_that_is_the_finding() -> None:
    spans = []
    for block in range(4):
        for warp in (0, 1):
            for i in range(10):
                spans.append(Span("mma", i * 10_000, 3000, block=block, warp=warp, sm=block))
                spans.append(Span("wait_tma", i * 10_000 + 3000, 7000, block=block, warp=warp, sm=block))
    top = findings(make_trace(spans))[0]
    assert (top.kind, top.region) == ("too little in flight", "wait_tma")
    assert top.gain.low < 0.7 <= top.gain.high


def test_a_region_can_be_declared_a_wait() -> None:
    trace = make_trace([Span("mma", 0, 3000), Span("phase2", 3000, 7000)])
    assert waits(trace)["kernel"].share == 0.0
    assert waits(trace, waits="^phase2$")["kernel"].share == pytest.approx(0.7)


@pytest.mark.parametrize(
    ("name", "purpose"),
    [
        ("wait_full", Purpose.WAIT),
        ("async_wait", Purpose.WAIT),
        ("cp_async", Purpose.MEMORY),
        ("asyncCopy", Purpose.MEMORY),
        ("__syncthreads", Purpose.WAIT),
        ("load sync_utils.py:57", Purpose.MEMORY),
        ("wgmma", Purpose.WORK),
        ("QK dot", Purpose.WORK),
        ("TMALoad", Purpose.MEMORY),
        ("phase2", Purpose.OTHER),
    ],
)
def test_purpose_is_told_from_the_words_of_a_name(name: str, purpose: Purpose) -> None:
    assert purpose_of(name) is purpose
