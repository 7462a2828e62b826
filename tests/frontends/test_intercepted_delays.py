"""Delays in kernels of other libraries: their PTX gets automatic marks, and the twin that runs is delayed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import warplens as wl
from tests.support.attached import attached
from tests.support.fake_driver import FakeDriver, fake_cupy, fake_driver, modules
from tests.support.vector_add_launch import BLOCK, GRID, PTX, Data
from warplens import simulate
from warplens.frontends import cupy


@pytest.fixture(name="gpu")
def _gpu(monkeypatch: pytest.MonkeyPatch) -> FakeDriver:
    """A driver whose events tell the time that launches take in the interpreter."""
    gpu = fake_driver(monkeypatch)
    run, now = simulate.run, [0.0]
    times: dict[int, float] = {}

    def timed(*arguments: Any, **options: Any) -> Any:
        result = run(*arguments, **options)
        now[0] += result.end_ns - result.start_ns
        return result

    def event(stream: int) -> int:
        handle = next(gpu.handles)
        times[handle] = now[0]
        return handle

    monkeypatch.setattr(simulate, "run", timed)
    monkeypatch.setattr(gpu, "event", event)
    monkeypatch.setattr(gpu, "elapsed_ns", lambda first, second: times[second] - times[first])
    return gpu


@pytest.fixture
def kernel(gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    with modules(monkeypatch, **fake_cupy(gpu, PTX)) as made:
        cupy._classes.cache_clear()
        cupy._compile.cache_clear()
        with attached("cupy"):
            yield made["cupy"].RawKernel("source", "vector_add")
    cupy._classes.cache_clear()


def test_cupy_kernels_are_delayed(gpu: FakeDriver, kernel: Any) -> None:
    data = Data(gpu)

    def run() -> np.ndarray:
        kernel(GRID, BLOCK, data.arguments)
        return data.result()

    found = wl.sensitivity(run, auto="loads,stores", rounds=3, records_per_warp=64)
    assert {one.kernel for one in found.regions} == {"vector_add"}
    by_kind = {one.region.split()[0]: one for one in found.regions}
    assert by_kind["store"].slope == pytest.approx(1.0, abs=0.15)
    assert found.results == "identical"
    assert {symbol for symbol, _, _ in gpu.fired} == {"vector_add"}
    run()
    assert gpu.fired[-1][1] is False, "plain again"


def test_a_region_that_the_twin_does_not_have_is_told(gpu: FakeDriver, kernel: Any, monkeypatch: Any) -> None:
    data = Data(gpu)
    from warplens.profiling import experiment

    chosen = experiment.Experiment._chosen
    monkeypatch.setattr(experiment.Experiment, "_chosen", lambda self, found: [*chosen(self, found)[:1], "gone"])
    monkeypatch.setattr(experiment._Target, "executions", lambda self, region: 1.0)
    found = wl.sensitivity(lambda: kernel(GRID, BLOCK, data.arguments), auto="stores", rounds=3, records_per_warp=64)
    assert "it has no region 'gone'" in found["gone"].reason
