"""Slopes fitted to launches with delays: known truth, noise, drift, outliers, and how often intervals hold it."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from warplens.analyse.delay_fit import DelaySample, fit_delays, trimmed_mean
from warplens.analyse.region_sensitivity import (
    CRITICAL,
    HIDDEN,
    PARTLY,
    SERIALISED,
    UNDECIDED,
    RegionSensitivity,
    Sensitivity,
    judge,
    ranked,
    verdict_of,
)
from warplens.profiling.delay_session import PLAIN, DelayArm

LEVELS = (0.0, 100.0, 200.0, 300.0, 400.0)
BASE = 100_000.0
COUNT = 50
"""Executions of the region."""


def measured(
    slope: float,
    rounds: int = 12,
    *,
    noise: float = 0.0,
    drift: float = 0.0,
    spikes: float = 0.0,
    hinge: float = 0.0,
    seed: int = 0,
) -> list[DelaySample]:
    """Launches of a kernel: `noise` and `drift` (over all rounds) as shares of its time, `spikes` the share of launches
    that take half as long again, `hinge` the delay up to which nothing happens."""
    random = np.random.default_rng(seed)
    out = []
    for number in range(rounds):
        for at, delay in enumerate(random.permutation(LEVELS)):
            cycles = BASE * (1 + drift * (number + at / len(LEVELS)) / rounds) + slope * COUNT * max(0.0, delay - hinge)
            cycles *= 1 + noise * random.normal()
            cycles *= 1.5 if random.random() < spikes else 1.0
            out.append(DelaySample(number, float(delay), float(delay), cycles))
    return out


def slope_of(samples: list[DelaySample]) -> tuple[float, float, float]:
    fit = fit_delays(samples)
    assert fit is not None
    return fit.rate.value / COUNT, fit.rate.low / COUNT, fit.rate.high / COUNT


@pytest.mark.parametrize("slope", [0.0, 0.37, 1.0, 4.0])
def test_the_slope_is_exact_without_noise(slope: float) -> None:
    found = slope_of(measured(slope))
    assert found == pytest.approx((slope, slope, slope), abs=1e-9)


@pytest.mark.parametrize("slope", [0.0, 0.5, 1.0])
def test_drift_of_the_clock_does_not_look_like_a_delay(slope: float) -> None:
    value, low, high = slope_of(measured(slope, drift=0.2, noise=0.002))
    assert value == pytest.approx(slope, abs=0.06)
    assert low <= slope <= high


def test_single_launches_that_something_held_up_move_it_little() -> None:
    values = [slope_of(measured(0.5, noise=0.003, spikes=0.03, seed=seed))[0] for seed in range(40)]
    assert np.median(np.abs(np.array(values) - 0.5)) < 0.06


@pytest.mark.parametrize(("slope", "rounds"), [(0.0, 3), (0.5, 5), (1.0, 12), (0.3, 25)])
def test_the_interval_holds_the_truth_as_often_as_it_says(slope: float, rounds: int) -> None:
    hits = 0
    for seed in range(400):
        _, low, high = slope_of(measured(slope, rounds, noise=0.01, drift=0.05, seed=seed))
        hits += low <= slope <= high
    assert 0.91 <= hits / 400 <= 0.99


def test_more_rounds_make_the_interval_narrower() -> None:
    few, many = (slope_of(measured(0.5, rounds, noise=0.01)) for rounds in (5, 40))
    assert many[2] - many[1] < (few[2] - few[1]) / 2


def test_a_delay_that_is_hidden_at_first_is_told() -> None:
    fit = fit_delays(measured(1.0, hinge=200.0, noise=0.001))
    assert fit is not None
    assert fit.hidden_up_to == 200
    assert fit.rate.value / COUNT == pytest.approx(0.7, abs=0.05), "of the delays from 100 to 400"
    assert [point.delay for point in fit.points] == [100, 200, 300, 400]
    assert fit.points[-1].extra.value == pytest.approx(200 * COUNT, rel=0.05)


@pytest.mark.parametrize("slope", [0.0, 1.0])
def test_a_straight_line_has_no_hidden_part(slope: float) -> None:
    fit = fit_delays(measured(slope, noise=0.001))
    assert fit is not None
    assert fit.hidden_up_to == 0


def test_the_spread_of_launches_without_a_delay_is_reported() -> None:
    fit = fit_delays(measured(0.5, rounds=200, noise=0.01))
    assert fit is not None
    assert fit.base_spread == pytest.approx(0.01, rel=0.3)
    assert fit.base_cycles == pytest.approx(BASE, rel=0.01)


def test_too_few_rounds_have_no_answer() -> None:
    assert fit_delays(measured(0.5, rounds=2)) is None
    without = [sample for sample in measured(0.5) if sample.delay]
    assert fit_delays(without) is None, "no launch without a delay"
    assert fit_delays([]) is None


def test_a_round_that_lost_launches_still_counts() -> None:
    samples = [sample for sample in measured(0.7) if (sample.round, sample.delay) not in {(0, 100.0), (3, 400.0)}]
    assert slope_of(samples)[0] == pytest.approx(0.7)


def test_what_it_costs_to_enter_the_loop_of_a_delay_is_no_slope() -> None:
    samples = [replace(one, cycles=one.cycles + COUNT * 60 * (one.delay > 0)) for one in measured(0.4)]
    assert slope_of(samples)[0] == pytest.approx(0.4)
    fit = fit_delays(samples)
    assert fit is not None
    assert fit.points[0].extra.value == pytest.approx(COUNT * (60 + 0.4 * 100))


def test_one_delay_alone_is_compared_with_none() -> None:
    samples = [one for one in measured(0.4) if one.delay in (0, 400)]
    assert slope_of(samples)[0] == pytest.approx(0.4)


def test_delays_that_end_with_a_whole_turn_of_a_loop_are_right_on_average() -> None:
    """Each delay is as long as its loop, which takes 33 cycles a turn."""
    arm, samples = DelayArm((0, 100, 200, 300, 400), 12), []
    while not arm.full:
        number, level, delay = arm.take()
        if number is not None and level != PLAIN:
            samples.append(DelaySample(number, level, delay, BASE + COUNT * 33 * math.ceil(delay / 33)))
    assert slope_of(samples)[0] == pytest.approx(1.0, abs=0.02)


def test_a_single_value_has_no_interval() -> None:
    assert trimmed_mean(np.array([3.0])).high == math.inf


@pytest.mark.parametrize(
    ("value", "reach", "word"),
    [
        (0.0, 0.05, HIDDEN),
        (0.02, 0.1, HIDDEN),
        (1.0, 0.05, CRITICAL),
        (0.95, 0.1, CRITICAL),
        (0.5, 0.1, PARTLY),
        (0.72, 0.02, PARTLY),
        (1.1, 0.1, CRITICAL),
        (4.0, 0.4, SERIALISED),
        (4.0, 0.9, SERIALISED),
        (0.5, 0.4, UNDECIDED),
        (0.0, 0.3, UNDECIDED),
    ],
)
def test_a_slope_in_a_word(value: float, reach: float, word: str) -> None:
    from warplens.analyse.delay_fit import Estimate

    assert verdict_of(Estimate(value, value - reach, value + reach)) == word


def answered(slope: float = 0.5) -> RegionSensitivity:
    fit = fit_delays(measured(slope, noise=0.001))
    assert fit is not None
    return judge(RegionSensitivity("attn", "attn grid 4", "qk", executions=COUNT, launches=9), fit, cycles_per_ns=2.0)


def test_a_trace_of_an_effect_is_no_end_of_hiding() -> None:
    fit = fit_delays(measured(0.01, hinge=200.0))
    assert fit is not None
    assert fit.hidden_up_to == 200
    one = judge(RegionSensitivity("k", "k", "x", executions=COUNT), fit, cycles_per_ns=2.0)
    assert (one.verdict, one.hidden_up_to) == (HIDDEN, 0)


def test_an_answer_survives_a_trace_file() -> None:
    answer = Sensitivity((answered(), RegionSensitivity("attn", "attn", "pv", reason="locked")), "identical", "H200")
    again = Sensitivity.from_json(answer.to_json())
    assert again == answer
    assert again["qk"].slope == pytest.approx(0.5, abs=0.05)
    assert again["qk"].base_ns == pytest.approx(BASE / 2, rel=0.01)
    with pytest.raises(KeyError):
        again["none"]


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"regions": 3},
        {"regions": [3, {"kernel": 4}]},
        {"regions": [{"kernel": "k", "variant": "v", "region": "r", "slope": "much", "delays": "x", "extra_ns": 1}]},
        {"regions": [{"kernel": "k", "variant": "v", "region": "r", "slope": 1.0, "low": None, "high": 2}]},
        {"results": 4, "notes": [1, 2], "device": None},
    ],
)
def test_a_document_of_something_else_gives_no_slope(document: dict[str, object]) -> None:
    found = Sensitivity.from_json(document)
    assert all(one.slope is None for one in found.regions)
    assert found.results == "not checked"


def test_the_most_critical_region_comes_first() -> None:
    some = [RegionSensitivity("b", "b", "x", slope=0.1), RegionSensitivity("a", "a", "y"), answered(0.2), answered(0.9)]
    assert [one.kernel for one in ranked(some)] == ["b", "a", "attn", "attn"]
    assert [round(one.slope or 0, 1) for one in ranked(some)][2:] == [0.9, 0.2]
