"""torch.profiler and warplens on one GPU: every recorded launch lies in its kernel, within the stated error."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
triton = pytest.importorskip("triton", reason="triton is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU here", allow_module_level=True)

from torch.profiler import ProfilerActivity  # noqa: E402

import warplens as wl  # noqa: E402
from warplens.analyse.torch.alignment import Aligned, align  # noqa: E402
from warplens.analyse.torch.kineto import read_torch  # noqa: E402
from warplens.analyse.torch.operators import summarise  # noqa: E402

pytestmark = pytest.mark.gpu
sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "torch"))

import layer  # noqa: E402

BOTH = [ProfilerActivity.CPU, ProfilerActivity.CUDA]


@pytest.fixture(scope="module")
def tensors() -> tuple[Any, Any]:
    made = torch.randn(64, 512, device="cuda"), torch.randn(512, 512, device="cuda") / 512**0.5
    layer.layer(*made)
    with wl.profile():
        layer.layer(*made)
    return made


def assert_inside(aligned: Aligned) -> None:
    """Asked of the spans themselves, on the merged clock."""
    trace = aligned.trace(0)
    start, duration, launch = (trace.numpy(name) for name in ("start_ns", "dur_ns", "launch"))
    assert set(launch.tolist()) == set(aligned.kernels)
    for number, kernel in aligned.kernels.items():
        mine = launch == number
        assert kernel.start - start[mine].min() <= aligned.error_ns
        assert (start + duration)[mine].max() - kernel.end <= aligned.error_ns


def test_all_launches_are_found_and_the_error_is_below_a_microsecond(tensors: tuple[Any, Any], tmp_path: Path) -> None:
    with wl.profile(tmp_path / "t.warplens", torch=True) as profile:
        for _ in range(20):
            layer.layer(*tensors)
            time.sleep(0.01)
    found = profile.torch
    assert found.aligned is not None
    assert len(found.aligned.kernels) == 40
    assert found.aligned.alignments[0].unmatched == ()
    assert found.aligned.error_ns < 1000
    assert_inside(found.aligned)
    assert {file.name for file in found.files} == {"t.pftrace", "t.torch.json"}
    assert {one.name: one.recorded for one in found.kernels if one.recorded} == {"row_softmax": 20, "scaled_add": 20}
    assert any(one.name == "aten::mm" and one.calls == 40 and one.self_cuda_ns for one in found.operators)


@pytest.mark.parametrize("options", [{"every": 3}, {"launches": 1, "kernels": "row_softmax"}, {"blocks": 2}])
def test_some_of_the_launches(options: dict[str, Any], tensors: tuple[Any, Any]) -> None:
    with wl.profile(torch=True, **options) as profile:
        for _ in range(10):
            layer.layer(*tensors)
    assert profile.torch.aligned is not None
    assert profile.torch.aligned.alignments[0].unmatched == ()
    assert_inside(profile.torch.aligned)


def test_the_operator_table_counts_as_torch_does(tensors: tuple[Any, Any], tmp_path: Path) -> None:
    with torch.profiler.profile(activities=BOTH, profile_memory=True) as session:
        with wl.profile(tmp_path / "t.warplens") as profile:
            for _ in range(5):
                layer.layer(*tensors)
    session.export_chrome_trace(str(tmp_path / "torch.json"))
    seen = read_torch(tmp_path / "torch.json")
    mine = {one.name: one for one in summarise(seen).operators}
    theirs = {row.key: row for row in session.key_averages()}
    for name in ("aten::matmul", "aten::mm"):
        assert mine[name].calls == theirs[name].count == 10
        assert mine[name].cpu_ns == pytest.approx(1000 * theirs[name].cpu_time_total, rel=1e-3, abs=1000)
    assert "[warplens]" not in mine, "recording takes no memory of torch's, so no operator is ours"
    assert mine["aten::matmul"].cuda_ns == sum(one.self_cuda_ns for one in mine.values() if one.name == "aten::mm")
    assert_inside(align(profile.trace, seen))
