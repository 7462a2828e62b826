"""diff: verdicts on repeated noisy runs, on injected changes, and on changes known by construction."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from tests.support.builders import Span, make_trace
from tests.support.noise import Kernel, run
from warplens.analyse.diff import ChangeVerdict, diff
from warplens.analyse.thresholds import Threshold, check
from warplens.errors import UsageError, WarplensError
from warplens.trace.model import Trace

STEADY = Kernel(clock_noise=0.005, blocks=66)


@pytest.mark.slow
def test_two_runs_of_the_same_kernel_are_the_same() -> None:
    """At most one false alarm in a hundred, with a clock that moves by up to 4 % between runs."""
    verdicts: Counter[ChangeVerdict] = Counter()
    kernels: Counter[ChangeVerdict] = Counter()
    for seed in range(40):
        launches = (8, 1, 3)[seed % 3]
        kernel = Kernel(launches=launches, blocks=66)
        found = diff(run(kernel, 2 * seed), run(kernel, 2 * seed + 1))
        verdicts.update(one.verdict for one in found)
        kernels.update(one.verdict for one in found.kernels)
    assert set(verdicts) <= {ChangeVerdict.SAME, ChangeVerdict.UNSURE}
    assert verdicts[ChangeVerdict.SAME] >= 0.9 * verdicts.total()
    assert set(kernels) <= {ChangeVerdict.SAME, ChangeVerdict.UNSURE}


@pytest.mark.parametrize(("region", "factor"), [("mma", 1.05), ("load", 1.05), ("mma", 0.94)])
def test_a_change_of_five_percent_is_found_where_it_is(region: str, factor: float) -> None:
    wanted = ChangeVerdict.SLOWER if factor > 1 else ChangeVerdict.FASTER
    for seed in range(6):
        found = diff(run(STEADY, 100 + 2 * seed), run(STEADY, 101 + 2 * seed, slower={region: factor}))
        assert found[region].verdict is wanted
        assert {one.verdict for one in found if one.region != region} == {ChangeVerdict.SAME}
        interval = found[region].changes["p50"]
        assert interval.low < factor - 1 < interval.high


def test_a_changed_clock_is_not_a_slower_kernel() -> None:
    """The same cycles at 1900 and at 1600 MHz; and the same ns for what waits for memory."""
    fast = make_trace([Span("mma", i * 1000, 900, block=b, cycles=1710) for b in range(8) for i in range(20)])
    slow = make_trace([Span("mma", i * 1200, 1069, block=b, cycles=1710) for b in range(8) for i in range(20)])
    assert diff(fast, slow)["mma"].verdict is ChangeVerdict.SAME


def test_a_change_below_two_cycles_is_the_same() -> None:
    def trace(lasts: int) -> Trace:
        return make_trace([Span("x", i * 100, lasts, block=b) for b in range(16) for i in range(50)])

    short, longer = trace(20), trace(21)
    change = diff(short, longer)["x"]
    assert change.changes["mean"].change == pytest.approx(0.05)
    assert (change.verdict, change.note) == (ChangeVerdict.SAME, "the change is at most 2 cycles")


def blocks(**regions: int) -> Trace:
    spans = []
    for block in range(8):
        at = 0
        for i in range(20):
            for region, lasts in regions.items():
                spans.append(Span(region, at, lasts + (i + block) % 3, block=block, sm=block))
                at += lasts + (i + block) % 3
    return make_trace(spans)


def test_new_and_vanished_regions_and_what_they_explain() -> None:
    found = diff(blocks(load=1000, mma=500, gone=200), blocks(load=1400, mma=500, new=100))
    assert {one.region: one.verdict for one in found} == {
        "load": ChangeVerdict.SLOWER,
        "mma": ChangeVerdict.SAME,
        "gone": ChangeVerdict.GONE,
        "new": ChangeVerdict.NEW,
    }
    explained = {one.region: one.explains for one in found}
    assert explained == pytest.approx({"load": 400 / 300, "mma": 0.0, "gone": -200 / 300, "new": 100 / 300}, abs=0.02)
    assert sum(value for value in explained.values() if value is not None) == pytest.approx(1.0)
    assert found.verdict is ChangeVerdict.SLOWER
    json.dumps(found.to_json(), allow_nan=False)


def test_a_region_that_never_ended_is_still_there() -> None:
    def trace(blocks: int) -> Trace:
        ended = [Span("x", i * 200, 100 + i % 2, block=b) for b in range(8) for i in range(10)]
        return make_trace([*ended, *(Span("hung", 5000, 100, block=b, open=True) for b in range(blocks))])

    for blocks, verdict in ((2, ChangeVerdict.SAME), (3, ChangeVerdict.UNSURE)):
        change = diff(trace(2), trace(blocks))["hung"]
        assert (change.verdict, change.note) == (verdict, "it never ended in either trace")
    assert diff(trace(2), trace(2)).verdict is ChangeVerdict.SAME


def test_counts_are_compared_per_launch() -> None:
    def trace(launches: int, rounds: int) -> Trace:
        each = [(n, b, i) for n in range(launches) for b in range(8) for i in range(rounds)]
        return make_trace([Span("x", n * 10_000 + i * 200, 100 + i % 2, block=b, launch=n) for n, b, i in each])

    once, twice = trace(1, 10), trace(2, 20)
    assert diff(once, twice)["x"].count_change == pytest.approx(1.0)


def test_one_block_says_it_cannot_know_the_noise() -> None:
    one, other = (make_trace([Span("x", i * 9000, n) for i in range(20)]) for n in (1000, 1500))
    change = diff(one, other)["x"]
    assert change.verdict is ChangeVerdict.UNSURE
    assert "only one block" in change.note
    assert diff(one, one)["x"].verdict is ChangeVerdict.SAME


def test_nothing_becomes_shorter_by_more_than_all_of_it() -> None:
    one, other = (make_trace([Span("x", 0, n * (1 + 3 * b), block=b) for b in range(2)]) for n in (1000, 1400))
    interval = diff(one, other)["x"].changes["mean"]
    assert interval.low == -1.0
    assert interval.high > 4


def test_kernels_are_matched_by_name() -> None:
    def trace(*kernels: str) -> Trace:
        each = [(n, name, b) for n, name in enumerate(kernels) for b in range(4)]
        return make_trace([Span("x", n * 9000 + b, 100, block=b, launch=n, kernel=name) for n, name, b in each])

    assert [one.kernel for one in diff(trace("a"), trace("b")).kernels] == ["a -> b"]
    assert [one.kernel for one in diff(trace("a", "b"), trace("b", "c")).kernels] == ["b"]
    with pytest.raises(WarplensError, match="no kernel in common"):
        diff(trace("a", "b"), trace("c", "d"))
    with pytest.raises(WarplensError, match="AFTER holds no spans"):
        diff(trace("a"), make_trace([]))


@pytest.mark.parametrize(
    ("text", "crossed"),
    [
        ("load.p50:+5%", True),
        ("load.p50:+50%", False),
        ("load.mean:+100", True),
        ("load.p95_cycles:900", True),
        ("load.p95:9000", False),
        ("load.p50:-5%", False),
        ("mma.p50:+1%", False),
        ("kernel.time:+2%", True),
        ("load.count:+1%", False),
    ],
)
def test_thresholds(text: str, crossed: bool) -> None:
    found = diff(blocks(load=1000, mma=500), blocks(load=1400, mma=500))
    assert [one.crossed for one in check(found, [Threshold.parse(text)])] == [crossed]


def test_a_threshold_is_not_crossed_by_noise() -> None:
    noisy = Kernel(launches=5, blocks=4, rounds=2, span_noise=0.5, clock_noise=0.0)
    before = run(noisy, 1)
    worst = max((run(noisy, seed) for seed in range(2, 12)), key=lambda trace: trace.stats()["load"].mean)
    found = diff(before, worst)
    limit = 100 * (worst.stats()["load"].mean / before.stats()["load"].mean - 1) / 2
    assert limit > 0
    (crossing,) = check(found, [Threshold.parse(f"load.mean:+{limit:.3f}%")])
    assert not crossing.crossed
    assert "noise" in crossing.note


@pytest.mark.parametrize(
    "text", ["load", "load.p50", "load.p50:5%", "load.p51:+5%", "load.p50:+x%", ".p50:+5%", "load.region:+5%"]
)
def test_malformed_thresholds_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        Threshold.parse(text)


def test_thresholds_on_regions_that_are_not_there() -> None:
    found = diff(blocks(load=1000, gone=10), blocks(load=1000))
    with pytest.raises(UsageError, match="did you mean 'load'"):
        check(found, [Threshold.parse("laod.p50:+5%")])
    with pytest.raises(WarplensError, match="not in AFTER"):
        check(found, [Threshold.parse("gone.p50:+5%")])


def test_region_names_with_dots_and_colons() -> None:
    one = Threshold.parse("load attn.py:57.p95_ns:+2.5%")
    assert (one.region, one.metric, one.number, one.relative) == ("load attn.py:57", "p95_ns", 2.5, True)


def test_what_a_threshold_says_is_readable_and_names_the_side_that_is_allowed() -> None:
    found = diff(blocks(load=12_345), blocks(load=12_345))
    more, less = check(found, [Threshold.parse("load.p50:+5%"), Threshold.parse("load.p50:-5%")])
    assert more.text == "load.p50:+5%: 24,692 -> 24,692 (allowed: at most 25,927)"
    assert less.text == "load.p50:-5%: 24,692 -> 24,692 (allowed: at least 23,457)"
