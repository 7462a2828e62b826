"""Benchmarks on the CPU with a fake clock: what is measured, when it stops, what is checked, and what goes wrong."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warplens as wl
from warplens.bench.benchmark_job import BenchmarkJob
from warplens.bench.cpu_backend import CpuBackend
from warplens.bench.measurement_method import Method
from warplens.bench.parameter_axes import spellings
from warplens.bench.parameter_options import apply_options
from warplens.bench.result_check import check, dtype_name
from warplens.bench.results import Results
from warplens.bench.sample_statistics import deviation, drift, median_interval, summarise, thinned
from warplens.bench.stopping_rule import collect
from warplens.bench.throttle import Reading, throttled
from warplens.errors import UsageError


class Clock:
    """A clock that only work moves."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        return self.ns

    def work(self, durations: Iterator[float], result: Any = None) -> Callable[..., Any]:
        def run(*_: Any) -> Any:
            self.ns += round(next(durations))
            return result

        return run


def sampled(series: Iterator[float], **method: Any) -> Any:
    """Collect from a series of ns, with a host clock that runs as the samples do."""
    clock = Clock()
    backend = CpuBackend(clock)
    call = clock.work(series)
    return collect(lambda n: backend.sample([call] * n, backend.resolve(Method())), Method(**method), backend.seconds)


# --- the stopping rule


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.floats(1e3, 1e7), st.floats(0.0005, 0.05), st.sampled_from([0.005, 0.01, 0.05]))
def test_a_steady_series_stops_and_its_median_is_as_close_as_promised(
    seed: int, scale: float, noise: float, wanted: float
) -> None:
    rng = np.random.default_rng(seed)
    series = (float(value) for value in iter(lambda: scale * (1 + noise * rng.standard_normal()), None))
    found = sampled(series, rel_dev=wanted, min_time=0, timeout=1e6, max_samples=10**6)
    assert found.unmet == ""
    assert len(found.series) >= 30
    assert deviation(found.series) <= wanted
    # The interval covers 95 %; three times as far is beyond any seed.
    assert abs(np.median(found.series) / scale - 1) < 3 * wanted


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32))
def test_a_noisy_series_times_out_and_names_the_condition(seed: int) -> None:
    rng = np.random.default_rng(seed)
    series = (float(value) for value in iter(lambda: 1e6 * rng.lognormal(0, 1.0), None))
    found = sampled(series, rel_dev=0.001, timeout=0.5, max_samples=10**6)
    assert found.unmet.startswith("timeout after 0.5 s: relative deviation")
    assert "target 0.1 %" in found.unmet
    assert 0.4e9 < found.series.sum() < 0.9e9


@pytest.mark.parametrize(
    ("durations", "method", "reached"),
    [
        (itertools.repeat(4e8), {"timeout": 1.0}, "timeout after 1 s: 3 of at least 30 samples"),
        (itertools.repeat(1e6), {"min_time": 0.5, "timeout": 0.2}, "timeout after 0.2 s: 0.2 s of at least 0.5 s"),
        (itertools.cycle([1e6, 2e6]), {"max_samples": 200}, "200 samples taken: relative deviation 33.3 %, target"),
        (
            (1e6 * 1.002**n for n in itertools.count()),
            {"max_samples": 40, "min_samples": 40, "rel_dev": 0.0152},
            "40 samples taken: drift: the last quarter is 6.2% slower than the first",
        ),
    ],
)  # fmt: skip
def test_each_unmet_condition_has_its_name(durations: Iterator[float], method: dict[str, Any], reached: str) -> None:
    assert sampled(durations, **method).unmet.startswith(reached)


def test_short_work_needs_no_more_than_max_samples() -> None:
    found = sampled(itertools.repeat(10.0), min_time=1.0, max_samples=500)
    assert found.unmet == ""
    assert len(found.series) == 500


def test_one_slow_call_does_not_overrun_the_timeout_by_more_than_a_call() -> None:
    assert sampled(itertools.repeat(7e8), timeout=1.0).series.tolist() == [7e8, 7e8]


# --- statistics


@settings(max_examples=60, deadline=None)
@given(st.lists(st.floats(1, 1e9), min_size=2, max_size=300))
def test_statistics_are_numpys(values: list[float]) -> None:
    series = np.array(values)
    found = summarise(series)
    for name, share in {"p5_ns": 5, "p25_ns": 25, "median_ns": 50, "p75_ns": 75, "p95_ns": 95}.items():
        assert found[name] == pytest.approx(np.percentile(series, share))
    assert found["std_ns"] == pytest.approx(np.std(series, ddof=1))
    assert (found["min_ns"], found["max_ns"]) == (series.min(), series.max())
    assert found["mean_ns"] == pytest.approx(series.mean())


@pytest.mark.parametrize("draw", ["normal", "exponential", "bimodal"])
def test_the_interval_holds_the_true_median_as_often_as_it_says(draw: str) -> None:
    rng = np.random.default_rng(5)
    make: dict[str, tuple[Callable[[], Any], float]] = {
        "normal": (lambda: rng.normal(100, 5, 60), 100.0),
        "exponential": (lambda: rng.exponential(1, 60), math.log(2)),
        "bimodal": (lambda: rng.choice([0, 50], 60) + rng.normal(100, 1, 60) * rng.choice([1, 1.1], 60), math.nan),
    }
    sample, true = make[draw]
    if draw == "bimodal":
        true = float(np.median(np.concatenate([sample() for _ in range(5000)])))
    held = [low <= true <= high for low, high in (median_interval(sample()) for _ in range(1000))]
    assert np.mean(held) > 0.93


def test_no_number_of_samples_makes_the_interval_less_sure_than_it_says() -> None:
    for n in range(9, 300):
        low, high = (int(rank) for rank in median_interval(np.arange(1.0, n + 1)))
        assert sum(math.comb(n, below) for below in range(low, high)) >= 0.95 * 2**n


def test_drift_is_seen_through_noise_and_not_in_noise() -> None:
    rng = np.random.default_rng(1)
    noise = 1 + 0.05 * rng.standard_normal((300, 200))
    assert sum(drift(series) != 0 for series in noise) <= 3
    assert drift(noise[0] * np.linspace(1, 1.3, 200)) == pytest.approx(0.22, abs=0.06)


def test_kept_samples_are_evenly_chosen() -> None:
    kept = thinned(np.arange(5000.0))
    assert (len(kept), kept[0], kept[-1]) == (1000, 0.0, 4999.0)
    assert thinned(np.array([1.26, 2.0])) == (1.3, 2.0)


def test_throttling_names_its_evidence() -> None:
    steady, slowing = np.full(100, 10.0), np.repeat([10.0, 11.0], 50)
    assert throttled([Reading(1980.0), Reading(1965.0)], steady) == ""
    assert throttled([Reading(1980.0), Reading(1500.0, ("the power limit",))], steady) == (
        "SM clock fell from 1,980 to 1,500 MHz, throttled by the power limit (NVML)"
    )
    assert throttled([Reading(1500.0, ("the temperature limit",))], steady).startswith(
        "SM clock at 1,500 MHz, throttled by"
    )
    assert throttled([], steady) == ""
    assert throttled([], slowing) == (
        "the last quarter of the samples is 10.0% slower than the first (the clock could not be read)"
    )


# --- correctness


def wide(value: Any) -> Any:
    return np.asarray(value, np.float64)


def test_results_are_held_against_float64() -> None:
    right = np.linspace(-1, 1, 101)
    assert check(right + 1e-6, right, 1e-4, wide).problem == ""
    # At the middle the reference is 0: what counts is the distance against the size of the others.
    off = right.copy()
    off[50] = 0.5
    found = check(off, right, 1e-4, wide)
    assert found.error == pytest.approx(0.5 / np.sqrt(np.mean(right**2)))
    assert found.problem == "relative error 0.86, allowed 0.0001"


def test_nan_inf_and_shapes_are_problems() -> None:
    right = np.ones(10)
    for bad, name in ((np.nan, "NaN"), (-np.inf, "Inf")):
        wrong = right.copy()
        wrong[3:5] = bad
        assert check(wrong, right, 1.0, wide).problem == f"2 of 10 values are {name}"
        assert check(wrong, None, 1.0, wide).problem == f"2 of 10 values are {name}"
        assert check(wrong, wrong, 1.0, wide).problem == ""
        expected = "2 of 10 values differ where the reference is NaN or Inf"
        assert check(right, wrong, 1.0, wide).problem == expected
        assert check(-wrong, wrong, 1.0, wide).problem == (expected if bad == -np.inf else "")
    assert check(right, right[:5], 1.0, wide).problem == "shape (10,), but the reference has (5,)"
    assert check((right, 2 * right), (right, right), 0.1, wide).problem == "result 1: relative error 0.5, allowed 0.1"
    assert check((right, right), right, 0.1, wide).problem == "2 results, but 1 in the reference"
    assert check(None, right, 0.1, wide).problem == "the function returned None, but there is a reference"
    assert check("text", None, 0.1, wide).problem == ""
    assert "a str cannot be compared" in check("text", right, 0.1, wide).problem


@pytest.mark.parametrize(
    ("given", "name"),
    [(np.dtype("float16"), "fp16"), ("torch.bfloat16", "bf16"), ("half", "fp16"), (np.float32, "fp32"),
     ("tf32", "tf32"), ("float8_e4m3fn", "fp8"), (np.dtype("int32"), "int32")],
)  # fmt: skip
def test_types_have_one_name(given: Any, name: str) -> None:
    assert dtype_name(given) == name


# --- whole runs


def run(make: Callable[..., wl.Case], clock: Clock, **declared: Any) -> Results:
    bench = wl.benchmark(**{"x": "n", "values": [1], "device": "cpu", **declared})(make)
    job = BenchmarkJob([bench], backend=CpuBackend(clock), warmup=0.0, min_time=0.0)
    list(job)
    return job.results()


def test_every_kind_of_row() -> None:
    clock = Clock()
    right = np.ones(4, np.float32)

    def make(n: int, impl: str) -> wl.Case:
        ns = {"base": 1000, "twice": 500}.get(impl, 100)
        results = {"bad": 1.5 * right, "nan": right * np.nan}
        work = clock.work(itertools.repeat(float(ns * n)), results.get(impl, right))
        if impl == "early":
            raise MemoryError
        if impl == "late":
            return wl.Case(lambda: (_ for _ in ()).throw(RuntimeError("CUDA out of memory. Tried to allocate\n 1 GiB")))
        if impl == "raises":
            return wl.Case(lambda: 1 // 0)
        if impl == "skips":
            return wl.Case(skip="not for this size")
        if impl == "nothing":
            return None  # type: ignore[return-value]
        return wl.Case(work, flops=2000 * n, bytes=4000 * n, reference=lambda: right.astype(float))

    names = ["base", "twice", "bad", "nan", "early", "late", "raises", "skips", "nothing"]
    found = run(make, clock, values=[1, 3], lines={"impl": names}, baseline="base")
    assert found.complete
    assert [(row.x, row.line) for row in found] == [(x, name) for x in (1, 3) for name in names]
    said = {row.line: (row.status, row.note) for row in found if row.x == 3}
    assert said == {
        "base": ("ok", ""),
        "twice": ("ok", ""),
        "bad": ("wrong", "relative error 0.25, allowed 0.0001"),
        "nan": ("wrong", "4 of 4 values are NaN"),
        "early": ("oom", "out of memory"),
        "late": ("oom", "out of memory"),
        "raises": ("failed", "ZeroDivisionError: integer division or modulo by zero"),
        "skips": ("skipped", "not for this size"),
        "nothing": ("failed", "UsageError: make() returned NoneType; expected a wl.Case"),
    }
    twice = found.row(n=3, impl="twice")
    assert (twice.median_ns, twice.speedup, twice.unmet) == (1500.0, 2.0, "")
    assert twice.samples >= 30
    assert (twice.tflops, twice.gbps, twice.dtype) == (6000 / 1500 / 1000, 12000 / 1500, "fp32")
    assert found.row(n=3, impl="bad").speedup is None
    assert found.row(n=3, impl="bad").median_ns == 300


def test_a_result_that_is_right_only_once_is_wrong() -> None:
    clock = Clock()

    def make(n: int) -> wl.Case:
        total = np.zeros(4)

        def accumulate() -> Any:
            clock.ns += 1000
            total[:] += 1
            return total.copy()

        return wl.Case(accumulate, reference=np.ones(4))

    (row,) = run(make, clock)
    assert row.status == "wrong"
    assert row.note.startswith("right in the first call, but after timing: relative error")


def test_a_reference_out_of_memory_leaves_the_row_unchecked_and_says_so() -> None:
    clock = Clock()

    def reference() -> Any:
        raise MemoryError

    (row,) = run(lambda n: wl.Case(clock.work(itertools.repeat(1e3), np.ones(2)), reference=reference), clock)
    assert (row.status, row.note) == ("ok", "not checked: the reference ran out of memory")
    assert row.tolerance is None


def test_a_dead_device_ends_the_run_but_keeps_every_row() -> None:
    class Dying(CpuBackend):
        def recover(self) -> str:
            return "the CUDA context does not work any more"

    clock = Clock()

    def make(n: int) -> wl.Case:
        return wl.Case(clock.work(itertools.repeat(1e3) if n != 2 else iter(())))

    bench = wl.benchmark(x="n", values=[1, 2, 3, 4], device="cpu")(make)
    job = BenchmarkJob([bench], backend=Dying(clock), warmup=0.0, min_time=0.0)
    assert [row.status for row in job] == ["ok", "failed", "failed", "failed"]
    assert job.rows[3].note == "not run: the CUDA context does not work any more"


def test_rotating_inputs_take_turns() -> None:
    clock = Clock()
    seen: list[int] = []

    def make(n: int) -> wl.Case:
        def work(block: Any) -> None:
            clock.ns += 1000
            seen.append(int(block[0]))

        return wl.Case(work, lambda number: (np.full(n, number, np.uint8),))

    bench = wl.benchmark(x="n", values=[24 << 20], device="cpu", cache="rotate")(make)
    rows = list(BenchmarkJob([bench], backend=CpuBackend(clock), warmup=0.0, min_time=0.0))
    assert rows[0].status == "ok"
    # 64 MiB of caches hold less than three sets of 24 MiB; samples go through them in turn, batch after batch.
    assert seen[-31:-1] == [0, 1, 2] * 10


def test_measured_ceilings_make_a_roof() -> None:
    clock = Clock()
    bench = wl.benchmark(x="n", values=[1], device="cpu")(
        lambda n: wl.Case(clock.work(itertools.repeat(1000.0)), flops=1e6, bytes=1e3, dtype="fp16")
    )
    job = BenchmarkJob(
        [bench], backend=CpuBackend(clock), measured={"bandwidth": 10.0, "fp16": 2.0}, warmup=0.0, min_time=0.0
    )
    (row,) = job
    assert (row.of_roof, row.bound) == (pytest.approx(0.5), "neither")
    assert job.results().roofs["fp16"].measured


def test_work_of_a_type_without_a_compute_roof_is_held_against_the_memory_alone() -> None:
    clock = Clock()
    bench = wl.benchmark(x="n", values=[1], lines={"bytes": [5e3, None]}, device="cpu")(
        lambda n, bytes: wl.Case(clock.work(itertools.repeat(1000.0)), flops=1e6, bytes=bytes, dtype="int64")
    )
    job = BenchmarkJob(
        [bench], backend=CpuBackend(clock), measured={"bandwidth": 10.0, "fp32": 1.0}, warmup=0.0, min_time=0.0
    )
    both, compute = job
    assert (both.of_roof, both.bound, both.tflops) == (pytest.approx(0.5), "neither", pytest.approx(1.0))
    assert (compute.of_roof, compute.bound, compute.tflops) == (None, "", pytest.approx(1.0))


def test_warm_up_is_not_sampled() -> None:
    clock = Clock()
    cold = itertools.chain(itertools.repeat(9e6, 5), itertools.repeat(1e6))
    bench = wl.benchmark(x="n", values=[1], device="cpu")(lambda n: wl.Case(clock.work(cold)))
    (row,) = BenchmarkJob([bench], backend=CpuBackend(clock), warmup=0.03, min_time=0.0)
    assert row.max_ns == 1e6


def test_the_real_clock_measures_real_work() -> None:
    import time

    bench = wl.benchmark(x="ms", values=[2], device="cpu")(lambda ms: wl.Case(lambda: time.sleep(ms / 1e3)))
    row = bench.run(rel_dev=0.5, min_samples=5, min_time=0, timeout=2.0).row(ms=2)
    assert 2e6 <= (row.min_ns or 0) < 50e6


# --- declarations


def test_parameters_from_python_replace_the_declared_ones() -> None:
    @wl.benchmark(x="n", values=[1, 2], lines={"impl": ["a", "b"]}, fixed={"causal": False}, device="cpu")
    def bench(n: int, impl: str, causal: bool) -> wl.Case:
        return wl.Case(lambda: None)

    chosen = bench.choose({"n": range(3, 5), "impl": "b", "causal": [False, True]})
    assert [tuple(case.values()) for case in chosen.cases()] == [
        (3, "b", False), (4, "b", False), (3, "b", True), (4, "b", True)
    ]  # fmt: skip
    assert isinstance(bench(1, "a", False), wl.Case)
    for wrong, message in [
        ({"m": 1}, "no parameter 'm'"), ({"impl": "c"}, "unknown impl"), ({"n": 0}, "must be greater than 0"),
        ({"n": []}, "the list of values is empty"), ({"n": [5, 5]}, "5 was given twice"),
    ]:  # fmt: skip
        with pytest.raises(UsageError, match=message):
            bench.choose(wrong)


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"x": "m"}, r"has no parameter 'm'"),
        ({"lines": {"impl": ["a"], "kind": ["b"]}}, "expected one parameter"),
        ({"lines": {"impl": ["a"]}, "baseline": "c"}, "baseline 'c': not one of the lines"),
        ({"fixed": {"n": 1}}, "declared twice"),
        ({"choices": {"dtpe": ["f"]}}, "choices: no parameter 'dtpe'"),
        ({"choices": {"impl": ["b"]}, "fixed": {"impl": "c"}}, "impl 'c': unknown impl"),
        ({}, "requires 'impl', which is not declared in x, lines or fixed"),
        ({"values": []}, "the list of values is empty"),
        ({"values": 3}, "expected a list"),
        ({"device": "gpu"}, "unknown device 'gpu'"),
        ({"rel_dve": 1}, "did you mean 'rel_dev'"),
        ({"timer": "event"}, "did you mean 'events'"),
        ({"min_samples": 1}, "expected 2 <= min <= max"),
    ],
)
def test_a_wrong_declaration_is_refused_where_it_stands(declared: dict[str, Any], message: str) -> None:
    def make(n: int, impl: str) -> wl.Case:
        raise AssertionError

    with pytest.raises(UsageError, match=message):
        wl.benchmark(**{"x": "n", "values": [1], **declared})(make)


def test_wrong_cases_are_refused() -> None:
    for wrong, message in [
        ({}, "give fn="),
        ({"fn": 3}, "is not callable"),
        ({"fn": print, "flops": -1}, "flops=-1"),
        ({"fn": print, "bytes": np.inf}, "bytes=inf"),
    ]:
        with pytest.raises(UsageError, match=message):
            wl.Case(**wrong)


def test_numpy_numbers_are_numbers() -> None:
    bench = wl.benchmark(x="n", values=2 ** np.arange(3), device="cpu")(lambda n: wl.Case(lambda: None))
    assert bench.x.values == (1, 2, 4)
    assert bench.x.parsed("8,16", "--n").values == (8, 16)


def test_a_parameter_named_like_an_option_of_the_verb_has_its_own() -> None:
    bench = wl.benchmark(x="n", values=[1], fixed={"device": "a"}, device="cpu")(
        lambda n, device: wl.Case(lambda: None)
    )
    own = ["--device", "--timeout"]
    (chosen,) = apply_options([bench], ["--n=2,4", "--param-device", "b"], own)
    assert [tuple(case.values()) for case in chosen.cases()] == [(2, "b"), (4, "b")]
    with pytest.raises(UsageError, match="no such option --device"):
        apply_options([bench], ["--device", "b"], own)


def test_one_option_sets_the_parameter_of_every_benchmark_that_has_it() -> None:
    first, second = (
        wl.benchmark(x=x, values=[1], device="cpu")(make)
        for x, make in (("n", lambda n: wl.Case(lambda: None)), ("m", lambda m: wl.Case(lambda: None)))
    )
    chosen = apply_options([first, first, second], ["--n", "7"])
    assert [one.x.values for one in chosen] == [(7,), (7,), (1,)]
    with pytest.raises(UsageError, match="two benchmarks are called '<lambda>'"):
        BenchmarkJob([first, second], backend=CpuBackend(Clock()))


def test_options_have_the_spellings_one_would_try() -> None:
    assert {"--seq-len", "--seq-lens", "--seq-lengths", "--seq-length", "--seq_len"} <= set(spellings("seq_len"))
    assert {"--heads", "--head"} <= set(spellings("heads"))
    assert {"--impl", "--impls", "--implementations"} <= set(spellings("impl"))
    assert {"--batch", "--batches"} <= set(spellings("batch"))
