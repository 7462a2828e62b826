"""mode="aggregate" on Triton kernels, from mark to trace, without a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

import warplens as wl
from tests.support.fake_gpu import FakeGpu, fake_gpu
from tests.support.simulated_trace import count_only_work
from tests.support.stepped_kernel import plain, run, stepped
from warplens.errors import UsageError, WarplensError


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with fake_gpu(monkeypatch, stepped, plain) as fake:
        yield fake


@pytest.mark.parametrize("clock", ["32", "64"])
def test_a_profile_keeps_the_statistics_of_its_records(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, clock: str
) -> None:
    count_only_work(monkeypatch)
    found = {}
    for mode in ("trace", "aggregate"):
        with wl.profile(tmp_path / f"{mode}.warplens", mode=mode, clock=clock) as profile:
            for _ in range(3):
                source, target = run(gpu, steps=9)
        np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 8)
        loaded = wl.load(tmp_path / f"{mode}.warplens")
        assert loaded.aggregated is (mode == "aggregate")
        assert repr(loaded.stats()) == repr(profile.trace.stats())
        found[mode] = {row.region: (row.count, row.total, row.min, row.max, row.exclusive) for row in loaded.stats()}
    assert found["aggregate"] == found["trace"]
    assert found["trace"]["load"][0] == 3 * 3 * 2 * 9


def test_instants_and_values_are_counted(gpu: FakeGpu) -> None:
    with wl.profile(mode="aggregate") as profile:
        run(gpu, steps=9)
    rows = profile.trace.spans.to_pylist()
    assert {row["region"]: row["count"] for row in rows if row["kind"] == "instant" and not row["track"]} == {
        "block": 1,
        "tick": 9,
        "half": 9,
    }


def test_automatic_marks_are_aggregated(gpu: FakeGpu) -> None:
    with wl.profile(auto=True, mode="aggregate") as profile:
        source, target = (gpu.tensor(np.arange(384, dtype=np.float32)) for _ in range(2))
        plain[(3,)](source, target, BLOCK=128, num_warps=2)
    assert profile.trace.aggregated
    assert {row.count for row in profile.trace.stats()} == {6}


@pytest.mark.parametrize("wrong", [{"full": "ring", "clock": "64"}, {"buffer": "shared"}])
def test_options_of_records_are_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="mode='aggregate'"):
        wl.profile(mode="aggregate", **wrong)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="mode='all'"):
        wl.profile(mode="all")  # type: ignore[arg-type]


def test_a_ring_beside_the_statistics_has_the_latest_records(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    count_only_work(monkeypatch)
    path, ring = tmp_path / "kernel.warplens", {"full": "ring", "records_per_warp": 32}
    with wl.profile(**ring) as records:
        run(gpu, steps=9)
    with wl.profile(path, mode="aggregate", **ring) as profile:
        run(gpu, steps=9)
    last = wl.load(tmp_path / "kernel.last.warplens")
    assert len(last)
    assert records.trace.meta.losses.records_lost == last.meta.losses.records_lost > 0
    for name in ("block", "warp", "region", "kind", "depth", "dur_cycles", "value"):
        assert last.spans[name].to_pylist() == records.trace.spans[name].to_pylist(), name
        assert profile.last_records.spans[name].to_pylist() == last.spans[name].to_pylist()
    loaded = wl.load(path)
    assert loaded.aggregated
    assert {row.region: row.count for row in loaded.stats()}["load"] == 3 * 2 * 9


def test_without_a_ring_there_are_no_last_records(gpu: FakeGpu) -> None:
    with wl.profile(mode="aggregate") as profile:
        run(gpu, steps=2)
    with pytest.raises(WarplensError, match="no last records"):
        _ = profile.last_records
