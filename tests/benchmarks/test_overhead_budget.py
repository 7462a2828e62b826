"""The benchmark of the overhead budget: what it counts, and its measurement by CUPTI of launches that alternate."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

import warplens as wl
from benchmarks.lib.alternating_launches import AlternatingLaunches, CuptiSlowdown, key_of
from benchmarks.overhead_budget import ALTERNATING, counts, profiled, said, table
from tests.support.fake_gpu import FakeGpu, fake_gpu
from tests.support.stepped_kernel import plain
from warplens.launch.timing import TIMED_LAUNCHES, Timings
from warplens.launch.variant import Variant
from warplens.record.capture import VARIANT

CALLS = 20


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(Timings, "are_over", lambda timings, variant: True)
    monkeypatch.setattr(Timings, "restart", lambda timings, variant: None)
    with fake_gpu(monkeypatch, plain) as fake:
        yield fake


def launch(gpu: FakeGpu, blocks: int) -> None:
    source, target = (gpu.tensor(np.arange(128 * blocks, dtype=np.float32)) for _ in range(2))
    plain[(blocks,)](source, target, BLOCK=128, num_warps=2)


def test_every_other_launch_is_recorded_with_the_weaving_that_was_kept(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slowdown(timings: Timings, variant: Variant) -> float:
        return 1.01 if variant.thinning.lives else 1.2

    monkeypatch.setattr(Timings, "slowdown_of", slowdown)
    watched = AlternatingLaunches()
    with watched.watching(), wl.profile(auto=True, overhead=0.05, launches=10, skip="cold") as profile:
        for _ in range(16):
            for _ in range(10):
                launch(gpu, 2)
            if watched.are_decided(TIMED_LAUNCHES):
                break
        assert watched.are_decided(TIMED_LAUNCHES)
        watched.alternating = True
        gpu.fired.clear()
        for _ in range(CALLS):
            launch(gpu, 2)
        watched.alternating = False
    woven = ["%globaltimer" in fired.ptx for fired in gpu.fired if fired.name == "plain"]
    assert woven == [False, True] * (CALLS // 2)
    assert [one.recorded for one in watched.made] == woven
    assert all(one.variant.thinning.lives for one in watched.made)
    (found,) = watched.slowdowns([("other", 1.0), *(("plain", 11.0 if marked else 10.0) for marked in woven)]).values()
    assert found == CuptiSlowdown(10.0, 11.0, CALLS // 2 - 1, CALLS // 2 - 1)
    assert found.ratio == pytest.approx(1.1)
    infos = profile.trace.meta.launches
    assert len(infos) == 10, "the launches that alternate are not in the trace"
    assert key_of("plain", infos[0].extra[VARIANT]) in watched.slowdowns([("plain", 1.0)] * CALLS)


def test_variants_of_a_kernel_are_measured_apart(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Timings, "slowdown_of", lambda timings, variant: 1.01)
    watched = AlternatingLaunches()
    with watched.watching(), wl.profile(auto=True, overhead=0.05, launches=10, skip="cold"):
        for _ in range(50):
            launch(gpu, 2)
            launch(gpu, 3)
        watched.alternating = True
        for _ in range(CALLS):
            launch(gpu, 2)
            launch(gpu, 3)
        watched.alternating = False
    cost = {2: (10.0, 10.2), 3: (20.0, 30.0)}
    durations = [("plain", cost[2 + number % 2][one.recorded]) for number, one in enumerate(watched.made)]
    found = watched.slowdowns(durations)
    assert sorted(round(one.ratio, 3) for one in found.values()) == [1.02, 1.5]
    assert not watched.slowdowns(durations[1:]), "CUPTI missed a launch"


def test_a_case_is_profiled_and_measured(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.cuda = SimpleNamespace(synchronize=lambda: None, is_available=lambda: True)  # type: ignore[attr-defined]

    def measure(watched: AlternatingLaunches, run: Callable[[], Any], calls: int) -> dict[str, CuptiSlowdown]:
        watched.alternating = True
        for _ in range(calls):
            run()
        return watched.slowdowns(("plain", 12.0 if one.recorded else 10.0) for one in watched.made)

    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setattr(AlternatingLaunches, "measure", measure)
    monkeypatch.setattr(Timings, "slowdown_of", lambda timings, variant: 1.01 if variant.thinning.lives else 1.2)
    case = profiled(lambda: launch(gpu, 2), auto=True)
    (kernel,) = case["kernels"].values()
    assert kernel["lives"]
    assert kernel["us"] == 10.0
    assert kernel["cupti"]["ratio"] == pytest.approx(1.2)
    assert kernel["cupti"]["plain"] == kernel["cupti"]["recorded"] == ALTERNATING // 2 - 1
    assert [one["lives"] for one in kernel["tried"]] == [False] * (len(kernel["tried"]) - 1) + [True]
    json.dumps(case)


def row(us: float, profile: float | None, cupti: float | None, covered: float | None, **more: Any) -> dict[str, Any]:
    by_cupti = None if cupti is None else {"ratio": cupti, "plain": 20, "recorded": 20, "plain_us": us}
    known = {"tried": [], "step": 1, "omitted": [], "launches": [10, 11], "lives": False}
    return {**known, "us": us, "slowdown": profile, "cupti": by_cupti, "covered": covered, **more}


def test_the_targets_are_counted_by_both_measurements_and_short_kernels_apart(tmp_path: Path) -> None:
    rows = {
        "good (1, 1, 1)": row(40, 1.05, 1.05, 0.8),
        "slow by the profile (1, 1, 1)": row(40, 1.0501, 1.0, 1.0),
        "slow by CUPTI (1, 1, 1)": row(40, 1.0, 1.0501, 1.0, step=31, omitted=["a"]),
        "not covered (1, 1, 1)": row(40, 1.0, 1.0, 0.79, lives=True),
        "not measured (1, 1, 1)": row(40, None, None, None),
        "short (1, 1, 1)": row(4.9, 1.0, 1.0, 1.0),
    }
    long = list(rows.values())[:-1]
    assert counts(long) == {"kernels": 5, "profile": 3, "cupti": 3, "covered": 3, "all": 1}
    found = {"device": "d", "torch": "t", "triton": "t", "date": "today", "cases": {"c": {"kernels": rows}}}
    (tmp_path / "overhead_budget.json").write_text(json.dumps(found))
    lines = table([tmp_path]).splitlines()
    assert lines[-2] == f"- 5 µs and longer: {said(counts(long))}"
    assert lines[-1].startswith("- shorter than 5 µs: 1 kernels; at most 1.05 by the profile 1, by CUPTI 1;")
    assert any("| 1 block in 31 | 1 regions |" in line for line in lines)
    assert any("| all marks | 79 % |" in line for line in lines)
    assert len(table([tmp_path, tmp_path]).splitlines()) > len(lines)
