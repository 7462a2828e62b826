"""Whoever times a kernel times the plain one, and chooses what it would choose without warplens."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402

import warplens as wl  # noqa: E402
import warplens.triton  # noqa: E402  so that profiles reach Triton kernels
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from warplens.frontends.triton.tuning import thread  # noqa: E402
from warplens.launch.timed_stretches import is_timed  # noqa: E402


@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offs, tl.load(x + offs, mask=offs < n) * 2, mask=offs < n)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with fake_gpu(monkeypatch) as device:
        yield device


def is_woven(fired: Any) -> bool:
    return "warplens" in fired.ptx


def cost(fired: Any) -> float:
    """The fake's clock: fewer blocks are better, but a woven kernel with few blocks pays most for its marks."""
    blocks = fired.grid[0]
    return blocks + (40 / blocks if is_woven(fired) else 0)


def tune(gpu: FakeGpu, times: list[list[float]]) -> tuple[Any, Any]:
    """Tune over three block sizes and launch once; what was chosen, and the result."""

    def bench(call: Any, quantiles: Any) -> list[float]:
        first = len(gpu.fired)
        for _ in range(5):
            call()
        assert not any(is_woven(one) for one in gpu.fired[first:]), "tuners time plain kernels"
        times.append([cost(one) for one in gpu.fired[first:]])
        return [float(np.median(times[-1]))] * 3

    configs = [triton.Config({"BLOCK": size}, num_warps=1) for size in (32, 64, 256)]
    tuned = triton.autotune(configs, key=["n"], do_bench=bench)(double)
    x, out = gpu.tensor(np.arange(256, dtype=np.float32)), gpu.tensor(np.zeros(256, np.float32))
    tuned[lambda meta: (256 // meta["BLOCK"],)](x, out, 256)
    return tuned.best_config.kwargs, out.numpy().copy()


def test_the_tuner_chooses_the_same_with_and_without_a_profile(gpu: FakeGpu) -> None:
    alone: list[list[float]] = []
    chosen, result = tune(gpu, alone)
    assert chosen == {"BLOCK": 256}
    beside: list[list[float]] = []
    with wl.profile(auto=True, least_occupancy=0.0) as profile:
        assert tune(gpu, beside)[0] == chosen
    assert beside == alone, "every candidate was timed as without a profile"
    assert [info.extra["variant"]["BLOCK"] for info in profile.trace.meta.launches] == [256], "only the winner is woven"
    assert profile.seen == {"double": 1}
    np.testing.assert_array_equal(result, np.arange(256) * 2)


def timed_calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """A do_bench in the shape of Triton's: a first call, five that estimate, a warm-up, then the timed ones."""
    timed: list[bool] = []

    def do_bench(fn: Any, warmup: int = 2, rep: int = 4) -> float:
        for number in range(6 + warmup + rep):
            timed.append(1 <= number <= 5 or number >= 6 + warmup)
            assert is_timed(), "nothing is done in the background"
            fn()
        return 1.0

    monkeypatch.setattr("triton.testing.do_bench", do_bench)
    return timed


def test_a_benchmark_loop_times_plain_kernels_and_records_what_it_does_not_time(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed = timed_calls(monkeypatch)
    from triton.testing import do_bench

    kept = ModuleType("program_with_its_own_name_for_it")
    kept.bench = do_bench  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, kept.__name__, kept)
    x, out = gpu.tensor(np.arange(256, dtype=np.float32)), gpu.tensor(np.zeros(256, np.float32))
    with wl.profile(auto=True, least_occupancy=0.0) as profile:
        assert kept.bench(lambda: double[(4,)](x, out, 256, BLOCK=64, num_warps=1)) == 1.0
        assert not thread.tuning
        assert not is_timed()
    woven = [is_woven(one) for one in gpu.fired]
    assert not any(marked and was for marked, was in zip(woven, timed, strict=True))
    assert [number for number, marked in enumerate(woven) if marked] == [0, 6]
    assert len(profile.trace.meta.launches) == 2
    assert kept.bench is do_bench, "the program's own names are as they were"
