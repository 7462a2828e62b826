"""What the views draw: innermost segments, bins of time, lines, roles, histograms and heat maps against plain loops."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.builders import Span, make_trace
from warplens.analyse.heatmap import OTHER, by_region, over_time
from warplens.analyse.histogram import histograms
from warplens.analyse.timeline import innermost, lanes, rows_of, strips, thinned
from warplens.errors import UsageError
from warplens.trace.model import Trace


def random_trace(seed: int, tracks: int = 5, loose: bool = False) -> Trace:
    """Nested spans, zero-length ones and instants included; with `loose`, some outlive their parents."""
    rng = random.Random(seed)
    spans: list[Span] = []

    def fill(track: int, begin: int, end: int, depth: int) -> None:
        now = begin
        while now < end and len(spans) < 400:
            now += rng.randint(0, 6)
            length = rng.choice((0, 1, rng.randint(1, 40)))
            stop = now + length if loose and rng.random() < 0.2 else min(now + length, end)
            if now >= end:
                break
            where = {"block": track // 2, "warp": track % 2, "sm": track // 2 % 2}
            kind = "instant" if stop == now and rng.random() < 0.5 else "span"
            spans.append(
                Span(f"r{rng.randint(0, 3)}", now, stop - now, kind=kind, depth=depth if loose else None, **where)
            )
            if depth < 3 and stop - now > 3 and rng.random() < 0.6:
                fill(track, now, min(stop, end), depth + 1)
            now = stop

    for track in range(tracks):
        fill(track, rng.randint(0, 9), 100, 0)
    return make_trace(spans)


def innermost_by_hand(trace: Trace) -> np.ndarray:
    """[track, ns] of the row that began last and still runs, by asking every nanosecond."""
    start, end, track = trace.numpy("start_ns"), trace.numpy("start_ns") + trace.numpy("dur_ns"), trace.numpy("track")
    table = np.full((int(track.max()) + 1, int(end.max()) + 1), -1)
    spans = np.flatnonzero(trace.of_kind("span"))
    for line in range(table.shape[0]):
        rows = spans[track[spans] == line]
        for now in range(table.shape[1]):
            active = rows[(start[rows] <= now) & (end[rows] > now)]
            if len(active):
                table[line, now] = active[-1]
    return table


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000), st.booleans())
def test_innermost_is_the_span_that_began_last_at_every_nanosecond(seed: int, loose: bool) -> None:
    trace = random_trace(seed, loose=loose)
    found = innermost(trace)
    expected = innermost_by_hand(trace)
    drawn = np.full(expected.shape, -1)
    for row, begin, end in zip(found.row, found.begin, found.end, strict=True):
        line = drawn[trace.numpy("track")[row]]
        assert (line[begin:end] == -1).all(), "two segments overlap"
        line[begin:end] = row
    assert (drawn == expected).all()


@pytest.mark.parametrize("by", ["sm", "block", "warp", "warp_index"])
def test_strips_hold_every_nanosecond_once(by: str) -> None:
    trace = random_trace(7)
    found = strips(trace, by, bins=13)
    expected = np.zeros(found.time.shape)
    rows, codes = rows_of(trace, by), trace.codes("region")[0]
    width = found.bin_ns
    for line in innermost_by_hand(trace):
        for now in np.flatnonzero(line >= 0):
            low = now - found.begin
            for at in range(int(low / width), min(int((low + 1) / width) + 1, 13)):
                piece = min(low + 1, (at + 1) * width) - max(low, at * width)
                expected[rows.of_span[line[now]], codes[line[now]], at] += max(piece, 0)
    assert np.allclose(found.time, expected)
    part = strips(trace, by, bins=1, time=(20, 50))
    assert part.time.sum() == sum((line[20:50] >= 0).sum() for line in innermost_by_hand(trace))


def test_rows_are_named_by_what_tells_them_apart() -> None:
    trace = make_trace([Span("a", 0, 1, block=3, warp=1, sm=2), Span("a", 5, 1, block=3, warp=1, sm=2, launch=1)])
    assert rows_of(trace, "sm").labels == ["SM 2"]
    assert rows_of(trace, "warp").labels == ["launch 0 block 3 warp 1", "launch 1 block 3 warp 1"]
    ranks = make_trace([Span("a", 0, 1, sm=0), Span("a", 0, 1, sm=0, rank=1)])
    assert rows_of(ranks, "sm").labels == ["rank 0 SM 0", "rank 1 SM 0"]
    with pytest.raises(UsageError, match="no rows by 'sms'"):
        rows_of(trace, "sms")


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000))
def test_no_two_spans_share_a_line_at_one_time(seed: int) -> None:
    trace = random_trace(seed, loose=True)
    line, track = lanes(trace), trace.numpy("track")
    start, end = trace.numpy("start_ns"), trace.numpy("start_ns") + trace.numpy("dur_ns")
    takes = trace.of_kind("span") & (end > start)
    for key in set(zip(track[takes].tolist(), line[takes].tolist(), strict=True)):
        rows = np.flatnonzero(takes & (track == key[0]) & (line == key[1]))
        assert (start[rows[1:]] >= end[rows[:-1]]).all()


def test_nested_spans_keep_their_depth_as_their_line() -> None:
    trace = random_trace(3)
    assert (lanes(trace) == trace.numpy("depth")).all()


def test_thinning_keeps_whole_blocks_of_every_sm_while_it_can() -> None:
    spans = [Span("a", 10 * i, 9, block=b, warp=w, sm=b % 6) for b in range(24) for w in range(2) for i in range(5)]
    trace = make_trace(spans)
    assert thinned(trace, 0).trace is thinned(trace, 240).trace is trace
    for most in (239, 120, 60, 25, 10):
        part = thinned(trace, most)
        blocks = set(part.trace.numpy("block").tolist())
        assert len(part.trace) == 10 * len(blocks) <= most, "only whole blocks"
        assert (part.kept, part.blocks) == (len(blocks), 24)
        assert len({block % 6 for block in blocks}) == min(6, most // 10), "as many SMs as fit"


def test_histograms_count_every_closed_span_once_over_common_edges() -> None:
    rng = np.random.default_rng(0)
    short = [Span("load", 1000 * i, 1, cycles=int(c)) for i, c in enumerate(rng.integers(250, 262, 500))]
    tail = [Span("wait", 1000 * i, 1, warp=1, cycles=int(c)) for i, c in enumerate(rng.geometric(0.01, 500) ** 2)]
    first = make_trace([*short, *tail, Span("load", 999_999, 5, cycles=7, open=True)])
    second = make_trace([Span("load", 0, 1, cycles=300), Span("new", 0, 0, warp=1, cycles=0)])
    found = histograms(first, second)
    load, other = found["load"]
    assert load is not None
    assert other is not None
    assert load.edges == other.edges
    assert (load.total, other.total, load.scale) == (500, 1, "linear")
    assert sum(c for low, c in zip(load.edges, load.counts, strict=False) if low < 262) == 500
    assert min(np.diff(load.edges)) >= 1
    assert found["wait"][0] is not None
    assert (found["wait"][0].scale, found["wait"][0].total, found["wait"][1]) == ("log", 500, None)
    assert found["new"][1] is not None
    assert found["new"][1].counts == (1,)


def test_heat_maps_agree_with_the_spans() -> None:
    trace = random_trace(11)
    whole = over_time(trace, "sm", bins=20)
    few = over_time(trace, "sm", bins=20, most=1)
    assert few.regions[-1] == OTHER
    assert np.allclose(whole.warps.sum(axis=0), few.warps.sum(axis=0))
    assert np.isclose(whole.warps.sum() * (whole.end - whole.begin) / 20, (innermost_by_hand(trace) >= 0).sum())
    matrix = by_region(trace, "block")
    spans = trace.spans.to_pylist()
    block, region = matrix.rows.keys[1][2], matrix.regions[2]
    chosen = [s["dur_cycles"] for s in spans if (s["block"], s["region"], s["kind"]) == (block, region, "span")]
    assert matrix.total[1, 2] == sum(chosen)
    assert matrix.mean[1, 2] == pytest.approx(sum(chosen) / len(chosen))
