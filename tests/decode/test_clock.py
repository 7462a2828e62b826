"""The clock fit against synthetic clocks whose truth is known."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from warplens.decode import decode
from warplens.decode.clock.anchor_fit import ClockLines, fit_anchors
from warplens.decode.clock.knots import _rising, piecewise
from warplens.record.capture import read_capture
from warplens.record.layout import SLOWEST_NS

GOLDEN = Path(__file__).parent.parent / "golden"
BASE = 1_763_000_000_000_000_000 // 32 * 32
"""A globaltimer is Unix time in ns: too large for a double, which the fit must survive."""


def anchors(truth, clocks: np.ndarray, step: int = 32) -> np.ndarray:
    """What the globaltimer reads at these clocks: the true time, rounded down to its step."""
    return BASE + (truth(clocks) // step * step).astype(np.int64)


def error(lines: ClockLines, unit: int, truth, clocks: np.ndarray) -> np.ndarray:
    placed = lines(np.full(len(clocks), unit), clocks) + (lines.base_ns - BASE)
    return placed - truth(clocks)


def test_unaligned_sms_land_on_one_time_axis() -> None:
    rng = np.random.default_rng(1)
    offsets = rng.integers(0, 3_400_000, 132)
    truths = [lambda c, o=o: (c - o) / 1.755 for o in offsets]
    clocks = [np.sort(o + rng.integers(0, 200_000, 16)) for o in offsets]
    unit = np.repeat(np.arange(132), 16)
    times = [anchors(truth, clock) for truth, clock in zip(truths, clocks, strict=True)]
    lines = fit_anchors(unit, np.zeros_like(unit), np.concatenate(clocks), np.concatenate(times))
    at = np.array([error(lines, sm, truths[sm], np.array([offsets[sm] + 100_000]))[0] for sm in range(132)])
    assert np.ptp(at) < 32, "the SMs disagree by more than the timer's step"
    assert len(np.unique(lines.first)) >= 131, "clocks that only happen to lie close together are not one"
    assert lines.step_ns == 32
    assert lines.residual_ns.max() <= 32
    assert lines.mhz()[0] == pytest.approx(1755, rel=2e-3)
    assert lines.mhz()[2] == pytest.approx(1755, rel=2e-3)


def test_a_frequency_step_in_mid_kernel_is_followed() -> None:
    rng = np.random.default_rng(2)
    breakpoint_, fast, slow = 1_000_000, 1.98, 1.5

    def truth(c: np.ndarray) -> np.ndarray:
        return np.where(c < breakpoint_, c / fast, breakpoint_ / fast + (c - breakpoint_) / slow)

    clock = np.sort(rng.integers(0, 2_000_000, 400))
    unit = np.zeros(400, np.int64)
    lines = fit_anchors(unit, unit, clock, anchors(truth, clock))
    assert lines.method == "piecewise"
    assert np.abs(error(lines, 0, truth, np.linspace(0, 2e6, 500).astype(np.int64)) + 16).max() < 32
    assert lines.mhz()[0] == pytest.approx(1500, rel=0.01)
    assert lines.mhz()[2] == pytest.approx(1980, rel=0.01)


def test_a_drifting_clock_stays_within_the_error_bar() -> None:
    def truth(c: np.ndarray) -> np.ndarray:
        x = c / 1e7
        return 1e7 / 1.9 * (x + 0.08 * x**2)

    clock = np.sort(np.random.default_rng(3).integers(0, 10_000_000, 2000))
    unit = np.zeros(len(clock), np.int64)
    lines = fit_anchors(unit, unit, clock, anchors(truth, clock))
    probe = np.linspace(0, 1e7, 1000).astype(np.int64)
    assert np.abs(error(lines, 0, truth, probe) + 16).max() < 64
    assert np.percentile(lines.residual_ns, 99) < 64


def test_a_delayed_read_does_not_bend_the_line() -> None:
    rng = np.random.default_rng(4)
    clock = np.sort(rng.integers(0, 1_000_000, 100))
    ns = anchors(lambda c: c / 1.8, clock)
    ns[[10, 50]] += 5000
    unit = np.zeros(100, np.int64)
    lines = fit_anchors(unit, unit, clock, ns)
    probe = np.linspace(0, 1e6, 100).astype(np.int64)
    assert np.abs(error(lines, 0, lambda c: c / 1.8, probe) + 16).max() < 32
    assert lines.residual_ns.max() > 4900, "the outlier must stay visible in the error bar"


def test_one_anchor_takes_the_rate_of_its_neighbours() -> None:
    clock = np.array([0, 1_000_000, 7_000_000])
    unit = np.array([0, 0, 1])
    lines = fit_anchors(unit, np.zeros(3, np.int64), clock, np.array([0, 500_000, 100_000]))
    assert lines(np.array([1]), np.array([7_002_000]))[0] == pytest.approx(101_000, abs=1)
    assert lines.method == "fitted"


def test_one_anchor_alone_takes_the_nominal_rate_and_says_so() -> None:
    one = np.zeros(1, np.int64)
    lines = fit_anchors(one, one, one + 50, one + 1000, nominal_mhz=2000)
    assert lines.method == "nominal"
    assert lines(one, one + 250)[0] == pytest.approx(100)
    assert fit_anchors(one, one, one, one).method == "unknown"


def test_a_very_short_kernel_is_not_misled_by_the_timer_step() -> None:
    clock = np.array([1000, 1250])
    unit = np.zeros(2, np.int64)
    lines = fit_anchors(unit, unit, clock, np.array([0, 160]), nominal_mhz=1980)
    assert 1562.5 < lines.mhz()[1] < 1980, "between what the timer says and what the device is made for"


@pytest.mark.parametrize("clocks", [[7, 8, 9, 1000], [0, 5_000_000, 0, 7]])
def test_a_timer_that_did_not_move_tells_no_rate(clocks: list[int]) -> None:
    one = np.zeros(4, np.int64)
    lines = fit_anchors(one, one, np.array(clocks, np.int64), one + 10**18, nominal_mhz=1980.0)
    assert lines.method == "nominal"
    assert lines.mhz() == pytest.approx((1980.0,) * 3)


def test_a_coarse_timer_makes_no_clock_faster_than_the_device() -> None:
    truth = np.sort(np.random.default_rng(5).integers(0, 2_000, (132, 8)), axis=1).ravel()
    sm = np.repeat(np.arange(132), 8)
    clocks = (truth * 1.755).astype(np.int64) + sm % 8 * 300_000
    lines = fit_anchors(sm, np.zeros_like(sm), clocks, truth // 1000 * 1000, nominal_mhz=1980.0)
    assert max(lines.mhz()) <= 1980.0


def test_no_cycle_takes_longer_than_any_gpu_runs() -> None:
    """Damaged headers: two warps begin three cycles and 57 years apart."""
    zero = np.zeros(2, np.int64)
    clocks = np.array([86_865_610_328, 86_865_610_331])
    times = np.array([31_238_937_408_160, 1_794_715_690_444_550_832])
    lines = fit_anchors(zero, zero, clocks, times, nominal_mhz=1980.0)
    assert lines.slope.max() <= SLOWEST_NS
    assert lines.residual_ns.max() > 10**17, "the clock's error says that they do not fit"


def test_places_of_a_thousand_launches_are_found_in_seconds() -> None:
    sm = np.arange(132_000)
    unit, launch = np.repeat(sm, 2), np.repeat(sm // 132, 2)
    truth = launch * 50_000 + np.tile([0, 20_000], len(sm))
    clocks = (truth * 1.755).astype(np.int64) + unit % 8 * 300_000
    lines = fit_anchors(unit, launch, clocks, truth, nominal_mhz=1980.0)
    begin = time.process_time()
    places = lines(unit, clocks)
    # Far above what it takes, far below a search per launch.
    assert time.process_time() - begin < 15
    assert np.abs(places - truth).max() < 5


def test_clocks_that_lie_near_each_other_are_told_apart_with_few_looks_for_knots(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """132 clocks within 3.4 million cycles: many are nearer to the next than those of one GPC may be."""
    rng = np.random.default_rng(3)
    sm = np.repeat(np.arange(132), 8)
    truth = np.sort(rng.integers(0, 200_000, (132, 8)), axis=1).ravel()
    clocks = (truth * 1.755).astype(np.int64) + rng.integers(0, 3_400_000, 132)[sm]
    calls = []
    monkeypatch.setattr(
        "warplens.decode.clock.anchor_fit.piecewise", lambda *given: calls.append(given) or piecewise(*given)
    )
    lines = fit_anchors(sm, np.zeros_like(sm), clocks, truth // 32 * 32, nominal_mhz=1980.0)
    assert np.abs(lines(sm, clocks) + lines.base_ns - truth).max() < 60
    assert len(calls) < 20


def test_no_anchors_is_no_fit() -> None:
    none = np.empty(0, np.int64)
    assert fit_anchors(none, none, none, none).method == "none"


def test_late_reads_in_a_short_kernel_do_not_look_like_another_clock() -> None:
    """Six microseconds on an H200: a few anchors per SM, some read late. All SMs ran at one rate."""
    rng = np.random.default_rng(5)
    unit = np.repeat(np.arange(16), 8)
    clock = np.sort(rng.integers(0, 10_600, (16, 8)), axis=1) + rng.integers(0, 3_400_000, (16, 1))
    ns = anchors(lambda c: c / 1.797, clock - clock[:, :1])
    ns[rng.random(ns.shape) < 0.2] += 32
    lines = fit_anchors(unit, np.zeros_like(unit), clock.ravel(), ns.ravel(), nominal_mhz=1980)
    slowest, _, fastest = lines.mhz()
    assert fastest / slowest < 1.005


def test_an_sm_with_a_rate_of_its_own_gets_it() -> None:
    clock = np.tile(np.linspace(0, 1_000_000, 50).astype(np.int64), 4)
    unit = np.repeat(np.arange(4), 50)
    rate = np.where(unit == 3, 1.5, 1.98)
    lines = fit_anchors(unit, np.zeros_like(unit), clock, BASE + (clock / rate // 32 * 32).astype(np.int64))
    assert lines.mhz()[0] == pytest.approx(1500, rel=0.002)
    assert lines.mhz()[2] == pytest.approx(1980, rel=0.002)
    assert lines.residual_ns.max() < 40


def test_warps_that_start_within_one_step_of_the_timer_make_no_clock_of_their_own() -> None:
    """Seen in a 28 µs kernel on an H200: a knot among the starts, and a clock of 10^16 MHz after it."""
    knots, values, slopes = _rising(np.array([0.0, 300.0, 50_000.0]), np.array([0.0, 1e-12, 25_000.0]), 0.5, 0.125)
    assert knots.tolist() == [0.0]
    assert values.tolist() == [0.0]
    assert slopes.tolist() == [0.5]


def gpcs(rng: np.random.Generator, leads: list[int], anchors_per_sm: int = 12) -> tuple[np.ndarray, ...]:
    """SMs in groups of 8 that share a clock, each clock with an own lead and a rate that falls when its load begins."""
    sm, clock, ns = [], [], []
    for gpc, lead in enumerate(leads):
        load, fast, slow = 40_000 + 5_000 * gpc, 1.98, 1.5 + 0.02 * gpc
        for number in range(8):
            t = np.sort(rng.integers(0, 200_000, anchors_per_sm))
            sm.append(np.full(anchors_per_sm, 8 * gpc + number))
            clock.append(lead + np.where(t < load, t * fast, load * fast + (t - load) * slow).astype(np.int64))
            ns.append(BASE + t // 32 * 32)
    return np.concatenate(sm), np.concatenate(clock), np.concatenate(ns)


@pytest.mark.parametrize("apart", [300_000, 5_000, 700])
def test_sms_that_share_a_clock_are_fitted_as_one(apart: int) -> None:
    """12 anchors cannot tell when an SM's clock slowed down; the 96 of its GPC can. Clocks that lie close together for
    once must not be taken for one."""
    unit, clock, ns = gpcs(np.random.default_rng(5), [gpc * apart for gpc in range(6)])
    lines = fit_anchors(unit, np.zeros_like(unit), clock, ns, 1980)
    assert np.percentile(lines.residual_ns, 99) < 48
    assert 1300 < lines.mhz()[0] < lines.mhz()[2] <= 1980
    shared = {tuple(lines.first[8 * gpc : 8 * gpc + 8]) for gpc in range(6)}
    assert len({group[0] for group in shared}) == 6
    if apart == 300_000:
        assert all(len(set(group)) == 1 for group in shared)


def test_clocks_of_a_real_gemm_are_those_of_its_eight_gpcs() -> None:
    """Anchors that the fit has not seen lie within the timer's step. SM by SM they were 1146 ns off (99 %)."""
    golden = np.load(GOLDEN / "anchors_gemm_h200.npz")
    unit, clock, ns = (golden[name].astype(np.int64) for name in ("sm", "clock", "ns"))
    seen = np.random.default_rng(0).random(len(unit)) < 0.5
    lines = fit_anchors(unit[seen], np.zeros_like(unit[seen]), clock[seen], ns[seen], 1980)
    assert sorted(np.unique(lines.first, return_counts=True)[1].tolist()) == [16, 16, 16, 16, 16, 16, 18, 18]
    off = np.abs(lines(unit[~seen], clock[~seen]) - (ns[~seen] - lines.base_ns))
    assert np.percentile(off, 50) < 10
    assert np.percentile(off, 99) < 40
    assert 1200 < lines.mhz()[0] < lines.mhz()[2] <= 1980


@pytest.mark.parametrize("path", sorted(GOLDEN.rglob("*.wlcap")), ids=lambda path: path.stem)
def test_no_real_clock_is_faster_than_its_device_can_run(path: Path) -> None:
    """Kernels of a few hundred ns gave 2,079 MHz on a device whose limit is 1,980: the steps of the timer."""
    capture = read_capture(path)
    trace = decode(capture)
    clock, limit = trace.meta.clock, capture.device.clock_mhz
    assert clock.mhz_min <= clock.mhz_mean <= clock.mhz_max <= limit
    assert 0 < clock.mhz_error < limit / 3
    assert clock.residual_max_ns < 40
    for info in trace.meta.launches:
        assert 1000 * info.busy_cycles / info.busy_ns < limit * 1.001 + 1000 / info.busy_ns * limit


def test_a_real_gemm_is_never_faster_than_the_device_and_as_well_placed() -> None:
    golden = np.load(GOLDEN / "anchors_gemm_h200.npz")
    unit, clock, ns = (golden[name].astype(np.int64) for name in ("sm", "clock", "ns"))
    lines = fit_anchors(unit, np.zeros_like(unit), clock, ns, 1980.0)
    assert lines.mhz()[2] <= 1980.0
    assert (1000 / lines.slope).max() <= 1980.0 * 1.0002
    assert np.percentile(lines.residual_ns, 50) < 10
    assert np.percentile(lines.residual_ns, 99) < 40


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize(("anchors_per_sm", "cycles"), [(2, 400), (4, 3000), (16, 100_000)])
def test_the_stated_error_of_a_rate_holds(seed: int, anchors_per_sm: int, cycles: int) -> None:
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(8), anchors_per_sm)
    clock = np.sort(rng.integers(0, cycles, (8, anchors_per_sm)), axis=1).ravel() + 10**9
    lines = fit_anchors(unit, np.zeros_like(unit), clock, anchors(lambda c: c / 1.755, clock), nominal_mhz=1980.0)
    for rate in (lines.mhz()[0], lines.mhz()[2]):
        assert abs(rate - 1755) <= 2 * lines.mhz_error()


def test_the_error_of_a_rate_shrinks_with_the_time_it_was_measured_over() -> None:
    errors = []
    for cycles in (1_000, 10_000, 100_000):
        clock = np.linspace(0, cycles, 16).astype(np.int64)
        unit = np.zeros(16, np.int64)
        errors.append(fit_anchors(unit, unit, clock, anchors(lambda c: c / 1.755, clock), 1980.0).mhz_error())
    assert errors[0] > 3 * errors[1] > 9 * errors[2] > 0


def test_clocks_of_invalid_headers_give_a_finite_fit() -> None:
    """Such clocks put the knots so far apart that the matrix of their fit is singular in doubles."""
    rng = np.random.default_rng(0)
    for _ in range(60):
        n = int(rng.integers(12, 40))
        clock = rng.integers(0, 10**6, n)
        ns = (clock / 1.7).astype(np.int64) // 32 * 32
        for at in rng.integers(0, n, 3):
            clock[at], ns[at] = (int(2 ** rng.uniform(0, 61.9)) for _ in range(2))
        unit = np.zeros(n, np.int64)
        lines = fit_anchors(unit, unit, clock, ns)
        assert np.isfinite(lines.residual_ns).all()
        assert np.isfinite(lines.knot_ns).all()
        assert (lines.slope > 0).all()
