"""Experiments with delays from the kernel to the answer, without a GPU: the interpreter's clock is the kernel's time."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import warplens as wl  # noqa: E402
from tests.support.fake_gpu import FakeGpu, fake_gpu  # noqa: E402
from tests.support.stepped_kernel import plain, run, stepped  # noqa: E402


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with fake_gpu(monkeypatch, timed=True) as fake:
        yield fake
        for kernel in (stepped, plain):
            kernel.device_caches.clear()
        gc.collect()


def test_every_region_of_a_serial_kernel_is_critical(gpu: FakeGpu) -> None:
    found = wl.sensitivity(lambda: run(gpu)[1].numpy(), kernels="stepped", rounds=3)
    for one in found.regions:
        print(one)
    assert found.results == "identical"
    assert found["load"].slope == pytest.approx(1.0, abs=0.1)
    assert found["scale it"].slope == pytest.approx(1.0, abs=0.1)
