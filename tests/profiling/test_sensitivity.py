"""Experiments with delays from kernel to answer without a GPU: the interpreter's clock is the kernel's time."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import warplens as wl
from tests.support.cuda_compilers import needs_nvrtc
from tests.support.interpreted_delays import SLOTS, runner, timed_driver
from tests.support.known_delays import KNOWN
from tests.support.timed_driver import TimedDriver
from warplens.analyse.measured_slopes import measured_slopes
from warplens.errors import UsageError, WarplensError
from warplens.profiling.delay_runs import digest
from warplens.profiling.delay_session import DITHER, IN_GRAPH, PLAIN, DelayArm
from warplens.profiling.experiment import RECORDED
from warplens.session import active

pytestmark = needs_nvrtc


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> TimedDriver:
    return timed_driver(monkeypatch)


def measure(run: Any, **options: Any) -> wl.Sensitivity:
    return wl.sensitivity(run, **{"rounds": 3, "records_per_warp": SLOTS, **options})


_LONG = {"uneven", "turns"}
"""These take the interpreter more than five seconds each."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] * (name in _LONG)) for name in KNOWN if "waves" not in name],
)
def test_kernels_with_known_answers(gpu: TimedDriver, name: str) -> None:
    found = measure(runner(gpu, name, blocks=4))
    assert {one.region: one.slope for one in found.regions} == {
        region: pytest.approx(slope, abs=0.06 * max(1, slope)) for region, slope in KNOWN[name]["expected"].items()
    }
    assert found.results == "identical"
    assert {one.kernel for one in found.regions} == {KNOWN[name]["kernel"]}


@pytest.mark.slow  # 48 blocks in the interpreter
def test_waves_of_blocks_add_up(gpu: TimedDriver) -> None:
    found = measure(runner(gpu, "serial, 3 waves", blocks=48), regions="first")
    assert found["first"].executions == 12, "three blocks of four steps follow each other"
    assert found["first"].slope == pytest.approx(1.0, abs=0.06)


@pytest.mark.slow  # many launches in the interpreter
def test_noise_widens_the_interval_which_still_holds_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    noise = random.Random(5)
    gpu = timed_driver(monkeypatch, lambda: 60 * noise.random())
    one = measure(runner(gpu, "hidden"), regions="consume", rounds=8)["consume"]
    assert one.low is not None
    assert one.high is not None
    assert one.low < 1.0 < one.high
    assert one.high - one.low < 0.5
    assert one.base_spread > 0


def test_the_trace_keeps_the_answer_beside_its_own_estimate(gpu: TimedDriver, tmp_path: Path) -> None:
    path = tmp_path / "hidden.warplens"
    found = measure(runner(gpu, "hidden"), trace=path)
    trace = wl.load(path)
    kept = measured_slopes(trace)["sides"].regions
    assert kept == found.regions
    assert {one.region: one.verdict for one in kept} == {"consume": "critical", "produce": "hidden"}
    assert found["consume"].path_share == pytest.approx(0.95, abs=0.05)
    assert {launch.kernel for launch in trace.meta.launches} == {"sides"}
    trace.export(tmp_path / "out.html")
    assert "measured slope" in (tmp_path / "out.html").read_text()
    with pytest.raises(WarplensError, match="exists"):
        measure(runner(gpu, "hidden"), trace=path)


def test_a_report_without_an_experiment_does_not_mention_it(gpu: TimedDriver, tmp_path: Path) -> None:
    run = runner(gpu, "hidden")
    with wl.profile(records_per_warp=SLOTS) as profile:
        run()
    profile.trace.export(tmp_path / "out.html")
    assert "measured slope" not in (tmp_path / "out.html").read_text()
    assert not measured_slopes(profile.trace).kernels


def test_every_call_launches_once_and_delays_change_from_call_to_call(gpu: TimedDriver) -> None:
    run, calls = runner(gpu, "hidden"), []

    def counted() -> np.ndarray:
        before = len([name for name, _ in gpu.ran if name == "sides"])
        value = run()
        calls.append(len([name for name, _ in gpu.ran if name == "sides"]) - before)
        return value

    measure(counted, regions="consume", delays=[100, 300])
    assert set(calls) == {1}
    given = [last for name, last in gpu.ran if name == "sides"][RECORDED + 1 :]
    assert {value for value in given if value < 100} == {0}
    assert {value // 100 * 100 for value in given if 0 < value < 1000} == {100, 300}
    assert len({value for value in given if 0 < value < 1000}) > 4
    kernels = [text for text in gpu.launched if ".entry sides" in text and "$wl_spin" in text]
    assert len(set(kernels)) == 1, "one machine code serves every delay"
    assert active() is None


def test_the_order_of_delays_is_random_and_every_round_is_complete() -> None:
    arm = DelayArm((0, 10, 20, 30, 40), rounds=20, seed=1)
    rounds: dict[int | None, list[int]] = {}
    while not arm.full:
        number, level, delay = arm.take()
        rounds.setdefault(number, []).append(level)
        assert delay == level if level <= 0 or number is None else 0 <= delay - level < DITHER
    warm_up = rounds.pop(None)
    assert len(warm_up) + sum(map(len, rounds.values())) == arm.needed
    assert all(sorted(some) == [PLAIN, 0, 10, 20, 30, 40] for some in rounds.values())
    assert len({tuple(some) for some in rounds.values()}) > 10


def test_a_region_in_a_lock_is_refused_and_others_are_measured(gpu: TimedDriver) -> None:
    source = LOCKED
    found = measure(runner(gpu, "turns", source=source))
    assert "lock" in found["held"].reason
    assert found["held"].slope is None
    assert found["free"].slope == pytest.approx(1.0, abs=0.1)


def test_results_that_change_under_a_delay_are_an_error(gpu: TimedDriver) -> None:
    run = runner(gpu, "hidden")

    def racy() -> np.ndarray:
        value = run()
        return value + (gpu.ran[-1][1] if 100 <= gpu.ran[-1][1] <= 400 else 0)

    with pytest.raises(WarplensError, match="results changed under a delay"):
        measure(racy, regions="consume", delays=[100, 400])


def test_results_that_vary_anyway_say_nothing(gpu: TimedDriver) -> None:
    run = runner(gpu, "hidden")
    found = measure(lambda: run() + random.random(), regions="consume")
    assert found.results == "varying"
    assert measure(lambda: (run(), None)[1], regions="consume").results == "not checked"


def test_an_error_of_the_program_is_its_own_and_nothing_stays_behind(gpu: TimedDriver) -> None:
    run, calls = runner(gpu, "hidden"), []

    def failing() -> None:
        calls.append(run())
        if len(calls) == 9:
            raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        measure(failing)
    assert active() is None


def test_what_cannot_be_asked(gpu: TimedDriver) -> None:
    run = runner(gpu, "hidden")
    with pytest.raises(UsageError, match=r"no recorded region is called 'consum' \(did you mean 'consume'"):
        measure(run, regions="consum")
    assert active() is None
    with pytest.raises(UsageError, match="expected a function"):
        measure(None)
    with pytest.raises(UsageError, match="rounds=2"):
        measure(run, rounds=2)
    with pytest.raises(UsageError, match="delays="):
        measure(run, delays=[0])
    with pytest.raises(UsageError, match="no option 'region'"):
        measure(run, region="consume")
    with pytest.raises(WarplensError, match="no kernel"):
        measure(run, kernels="other")


def test_switched_off_it_says_so(gpu: TimedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WARPLENS", "0")
    with pytest.raises(WarplensError, match="WARPLENS=0"):
        measure(runner(gpu, "hidden"))


def test_launches_in_a_graph_run_plain(gpu: TimedDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    run = runner(gpu, "hidden")
    calls = []

    def captured() -> np.ndarray:
        calls.append(1)
        if len(calls) > RECORDED + 1:
            monkeypatch.setattr(gpu, "is_capturing", lambda stream: True)
        return run()

    assert measure(captured, regions="consume")["consume"].reason == IN_GRAPH


def test_json_has_numbers_only_that_json_can_hold(gpu: TimedDriver) -> None:
    text = json.dumps(measure(runner(gpu, "hidden"), regions="consume").to_json(), allow_nan=False)
    assert json.loads(text)["regions"][0]["region"] == "consume"


def test_digests_compare_what_a_program_returns() -> None:
    one, other = np.arange(3), np.arange(3) + 1
    assert digest([one, {"a": 1.5}]) == digest((one.copy(), {"a": 1.5}))
    assert digest(one) != digest(other)
    assert digest(None) is None
    assert digest(object()) is None
    assert digest([b"ab", b"c"]) != digest([b"a", b"bc"])


LOCKED = """
#include <warplens.cuh>
extern "C" __global__ void turns(float* x, int steps, int length, wl::Buffer prof) {
  wl::Kernel k(prof);
  float v = threadIdx.x;
  {
    WL_REGION("free");
    for (int i = 0; i < 8 * steps; ++i) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(v));
  }
  __shared__ int lock;
  if (threadIdx.x == 0) lock = 0;
  __syncthreads();
  while (atomicCAS(&lock, 0, 1 + threadIdx.x / 32) != 0 && length < 0) {}
  {
    WL_REGION("held");
    for (int i = 0; i < steps; ++i) asm volatile("fma.rn.f32 %0, %0, %0, %0;" : "+f"(v));
  }
  atomicExch(&lock, 0);
  x[blockIdx.x * blockDim.x + threadIdx.x] = threadIdx.x;
}
"""
"""A lock that is taken and released; a negative length makes it a real one."""
