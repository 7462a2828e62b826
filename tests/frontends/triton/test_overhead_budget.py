"""overhead= on Triton kernels, without a GPU: what the budget leaves out is not in the code that runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton", reason="triton is not installed")

import warplens as wl
from tests.support.fake_gpu import FakeGpu, fake_gpu
from tests.support.stepped_kernel import plain, run, stepped
from warplens.launch import thinning as thinnings
from warplens.launch import variant as variants
from warplens.launch.overhead_budget import TRIAL_LAUNCHES
from warplens.launch.timing import Timings
from warplens.launch.variant import Variant
from warplens.record.capture import OVERHEAD_BUDGET, SAMPLED
from warplens.trace.schema import LIFE


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeGpu]:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    with fake_gpu(monkeypatch, stepped, plain) as fake:
        yield fake


def measured(monkeypatch: pytest.MonkeyPatch, sampled: float, fewer: float) -> None:
    """Every time is over at once; marks cost 1.5 in all blocks, `sampled` in some, `fewer` with regions left out."""

    def slowdown_of(timings: Timings, variant: Variant) -> float:
        return fewer if variant.thinning.omitted else sampled if variant.thinning.step > 1 else 1.5

    monkeypatch.setattr(Timings, "are_over", lambda timings, variant: True)
    monkeypatch.setattr(Timings, "restart", lambda timings, variant: None)
    monkeypatch.setattr(Timings, "slowdown_of", slowdown_of)


def test_sampled_blocks_record_everything_and_the_others_run_plain_code(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, 1.01, 1.01)
    monkeypatch.setattr(thinnings, "SAMPLE_STEPS", {3: 2})
    with wl.profile(overhead=0.05) as profile:
        for _ in range(3 * TRIAL_LAUNCHES):
            source, target = run(gpu)
            np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)
    found = profile.trace.spans.to_pylist()
    assert {row["block"] for row in found} == {1}
    counts = Counter(row["region"] for row in found if row["launch"] == 0)
    assert counts == {"all": 2, "block": 2, "load": 8, "scale it": 8, "tick": 8, "half": 8}
    extra = profile.trace.meta.launches[0].extra
    assert extra[SAMPLED] == {"blocks": 1, "of": 3, "lost": 0}
    assert extra[OVERHEAD_BUDGET]["step"] == 2
    woven = next(fired.ptx for fired in gpu.fired if "$wl_record_stepped:" in fired.ptx)
    assert "%clock" not in woven.split("$wl_record_stepped:")[0]
    (note,) = profile.notes["stepped"]
    assert "one block in 2 is recorded" in note


def test_the_densest_regions_are_left_out_of_the_code(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    measured(monkeypatch, 1.5, 1.01)
    with wl.profile(overhead=0.05) as profile:
        for _ in range(3 * TRIAL_LAUNCHES):
            source, target = run(gpu)
    np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)
    found = {row["region"] for row in profile.trace.spans.to_pylist()}
    omitted = set(profile.trace.meta.launches[0].extra[OVERHEAD_BUDGET]["omitted"])
    assert "tick" in omitted
    assert "all" in found
    assert found | omitted == {"all", "block", "load", "scale it", "tick", "half"}
    assert not found & omitted


def test_automatic_marks_have_the_plain_kernels_own_code_beside_them(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, 1.01, 1.01)
    monkeypatch.setattr(thinnings, "SAMPLE_STEPS", {2: 2})
    with wl.profile(auto=True, overhead=0.05) as profile:
        for _ in range(3 * TRIAL_LAUNCHES):
            source, target = (gpu.tensor(np.arange(384, dtype=np.float32)) for _ in range(2))
            plain[(3,)](source, target, BLOCK=128, num_warps=2)
    assert {row["block"] for row in profile.trace.spans.to_pylist()} == {1}
    woven = next(fired.ptx for fired in gpu.fired if "$wl_record_plain:" in fired.ptx)
    copy = woven.split("bra.uni $wl_record_plain;")[1].split("$wl_record_plain:")[0]
    assert "st.global" in copy
    assert "%wl_" not in copy


def above_with_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every time is over at once; automatic marks cost 1.2, however few there are."""
    measured(monkeypatch, 1.2, 1.2)
    monkeypatch.setattr(Timings, "slowdown_of", lambda timings, variant: 1.01 if variant.thinning.lives else 1.2)


def run_plain(gpu: FakeGpu, launches: int) -> None:
    for _ in range(launches):
        source, target = (gpu.tensor(np.arange(384, dtype=np.float32)) for _ in range(2))
        plain[(3,)](source, target, BLOCK=128, num_warps=2)
        np.testing.assert_array_equal(target.numpy(), source.numpy())


def test_a_kernel_above_the_budget_with_any_marks_keeps_the_lives_of_its_warps(
    gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch
) -> None:
    above_with_marks(monkeypatch)
    with wl.profile(auto=True, overhead=0.05) as profile:
        run_plain(gpu, 10 * TRIAL_LAUNCHES)
    found = profile.trace.spans.to_pylist()
    assert {row["region"] for row in found} == {LIFE}
    assert {(row["block"], row["warp"]) for row in found} == {(block, warp) for block in range(3) for warp in range(2)}
    assert profile.trace.meta.launches[0].extra[OVERHEAD_BUDGET]["lives"]
    (note,) = profile.notes["plain"]
    assert "only the lifetimes of its warps are recorded; 1.01x now" in note


def test_lives_alone_are_sampled_where_the_marks_were(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    above_with_marks(monkeypatch)
    slowdown = {False: 1.2, True: 1.1}
    monkeypatch.setattr(
        Timings,
        "slowdown_of",
        lambda timings, variant: 1.01 if variant.thinning.lives else slowdown[variant.thinning.step > 1],
    )
    monkeypatch.setattr(thinnings, "SAMPLE_STEPS", {2: 2})
    with wl.profile(auto=True, overhead=0.05) as profile:
        run_plain(gpu, 10 * TRIAL_LAUNCHES)
    assert {(row["region"], row["block"]) for row in profile.trace.spans.to_pylist()} == {(LIFE, 1)}
    woven = gpu.fired[-1].ptx if "$wl_record_plain:" in gpu.fired[-1].ptx else ""
    woven = woven or next(fired.ptx for fired in gpu.fired[::-1] if "$wl_record_plain:" in fired.ptx)
    copy = woven.split("bra.uni $wl_record_plain;")[1].split("$wl_record_plain:")[0]
    assert "st.global" in copy
    assert "%clock" not in copy


def test_a_kernel_keeps_its_own_marks_if_all_automatic_ones_go(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    above_with_marks(monkeypatch)
    with wl.profile(auto="loads", overhead=0.05) as profile:
        for _ in range(10 * TRIAL_LAUNCHES):
            source, target = run(gpu)
    np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)
    extra = profile.trace.meta.launches[0].extra[OVERHEAD_BUDGET]
    assert extra["lives"]
    found = {row["region"] for row in profile.trace.spans.to_pylist()}
    assert "all" in found
    assert found <= {"all", "block", "load", "scale it", "tick", "half"}


def test_a_kernel_sampled_for_grids_of_one_row_records_no_others(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a kernel with very many grids, later ones share a variant."""
    measured(monkeypatch, 1.5, 1.01)
    monkeypatch.setattr(thinnings, "SAMPLE_STEPS", {2: 2})
    monkeypatch.setattr(variants, "GRIDS_APART", 0)
    with wl.profile(auto=True, overhead=0.05) as profile:
        for number in range(4 * TRIAL_LAUNCHES):
            source, target = (gpu.tensor(np.arange(384, dtype=np.float32)) for _ in range(2))
            plain[(3, 3) if number % 4 == 3 else (3,)](source, target, BLOCK=128, num_warps=2)
    assert {info.grid for info in profile.trace.meta.launches} == {(3, 1, 1)}
