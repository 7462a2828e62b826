"""The code between automatic marks of Triton kernels, from the kernel to each answer, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

import tests.support.plain_kernels as kernels
import warplens as wl
from tests.support.fake_gpu import FakeGpu, fake_gpu
from tests.support.sass_kernels import needs_tools
from tests.support.simulated_trace import count_only_work
from warplens.calibrate import record_cost


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with fake_gpu(monkeypatch, kernels.add) as fake:
        yield fake


@needs_tools
def test_it_is_verified_and_summed(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count_only_work(monkeypatch)
    monkeypatch.setenv("WARPLENS_VERIFY", "1")
    x, y, out = (gpu.tensor(np.arange(512, dtype=np.float32)) for _ in range(3))
    shares = {}
    for mode in ("trace", "aggregate"):
        with wl.profile(tmp_path / f"{mode}.warplens", auto=True, mode=mode):
            kernels.add[(2,)](x, y, out, 512, 256)
        trace = wl.load(tmp_path / f"{mode}.warplens")
        work = {row.region: row for row in trace.stats().rows if row.region.startswith("work")}
        assert work
        (verified,) = trace.verify().values()
        known = {one.region: one for one in verified.regions}
        for name, row in work.items():
            assert known[name].ranges
            assert sum(known[name].counts.values()) == known[name].inside > 0
            assert row.purity == known[name].purity
        shares[mode] = sum(row.share for row in work.values())
    assert shares["trace"] == pytest.approx(shares["aggregate"])


def test_it_is_delayed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(record_cost, "constants", dict)
    with fake_gpu(monkeypatch, kernels.add, timed=True) as gpu:
        x, y, out = (gpu.tensor(np.arange(512, dtype=np.float32)) for _ in range(3))

        def add() -> np.ndarray:
            kernels.add[(2,)](x, y, out, 512, 256)
            return out.numpy()

        found = wl.sensitivity(add, auto=True, regions="work.*", rounds=3, delays=[2000, 4000])
        assert found.results == "identical"
        assert found.regions
        for one in found.regions:
            assert one.region.startswith("work")
            assert (one.executions, one.reason) == (1, "")
            assert one.slope == pytest.approx(1.0, abs=0.1), "nothing hides it"
