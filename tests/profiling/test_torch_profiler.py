"""torch.profiler beside a profile: the session, the operator table, the files, and what is said when it cannot be."""

from __future__ import annotations

import importlib.util
import json
import os
from pathlib import Path
from typing import Any

import pytest

import warplens as wl
from tests.support import fake_torch_profiler
from tests.support.merged_trace import assert_contained
from tests.support.torch_truth import EPOCH, Run
from tests.support.trace_processor import TraceProcessor
from warplens import session
from warplens.analyse.torch.kineto import MemoryEvent, Slice, TorchTrace, read_torch
from warplens.analyse.torch.operators import summarise
from warplens.commands import main
from warplens.errors import WarplensError
from warplens.trace.model import Trace


@pytest.fixture
def run(tmp_path: Path) -> Run:
    made = Run(1)
    for at in range(6):
        made.launch("add")
        made.launch("mul", record=False, ns=5_000 * (at + 1))
    made.write_torch(tmp_path / "exported.json")
    return made


@pytest.fixture
def torch(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    return fake_torch_profiler.install(monkeypatch, tmp_path / "exported.json")


def record(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let profiles end with what `run` would have recorded."""
    from warplens.profiling import profile

    monkeypatch.setattr(profile, "decode", lambda capture, **options: run.trace())


def test_a_profile_with_torch_writes_one_file_of_both(
    run: Run, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(run, monkeypatch)
    with wl.profile(tmp_path / "t.warplens", torch=True) as profile:
        assert torch.autograd._profiler_enabled()
    assert torch.profiler.profile.log == ["start", "stop"]
    assert not torch.autograd._profiler_enabled()
    found = profile.torch
    assert [file.name for file in found.files] == ["t.pftrace", "t.torch.json"]
    assert found.error_ns is not None
    assert found.error_ns < 1000
    assert {one.name: (one.calls, one.recorded) for one in found.kernels} == {"add": (6, 6), "mul": (6, 0)}
    assert_contained(TraceProcessor(tmp_path / "t.pftrace"))
    assert json.loads(json.dumps(found.to_json()))["alignment"][0]["matched"] == 6


def test_without_a_path_nothing_is_written(
    run: Run, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(run, monkeypatch)
    before = set(tmp_path.iterdir())
    with wl.profile(torch=True) as profile:
        pass
    assert profile.torch.files == ()
    assert len(profile.torch.operators) == 3
    assert set(tmp_path.iterdir()) == before


def test_the_program_may_use_torch_profiler_itself(
    run: Run, torch: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its own session wins, ours ends first and keeps what it saw, and the user is told."""
    record(run, monkeypatch)
    with wl.profile(torch=True) as profile:
        theirs = torch.profiler.profile(activities=["cpu"])
        theirs.start()
        assert torch.profiler.profile.log == ["start", "start", "stop"]
        theirs.stop()
    assert torch.profiler.profile.log[-1] == "stop"
    assert "only one can run" in capsys.readouterr().err
    assert profile.torch.operators
    assert not hasattr(fake_torch_profiler.AutogradProfile._prepare_trace, "__wrapped__")


@pytest.mark.parametrize("broken", ["synchronize", "stop"])
def test_a_kernel_that_failed_leaves_the_trace_and_the_blocks_own_error(
    run: Run, torch: Any, broken: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with ...")

    record(run, monkeypatch)
    monkeypatch.setattr(torch.cuda if broken == "synchronize" else torch.profiler.profile, broken, fail)
    with pytest.raises(ZeroDivisionError), wl.profile(torch=True) as profile:
        _ = 1 // 0
    assert len(profile.trace)
    assert session.active() is None
    said = capsys.readouterr().err
    assert ("torch.profiler failed: CUDA error: an illegal memory access" in said) is (broken == "stop")


def test_a_forked_child_leaves_torchs_profiler_to_its_parent(
    run: Run, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(run, monkeypatch)
    with wl.profile(torch=True) as profile:
        child = os.fork()
        if not child:
            try:
                profile.__exit__(SystemExit, SystemExit(), None)
            finally:
                os._exit(torch.profiler.profile.log != ["start"])
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert profile.torch.operators


def test_a_profiler_that_runs_already_is_left_alone(torch: Any) -> None:
    theirs = torch.profiler.profile(activities=["cpu"])
    theirs.start()
    with pytest.raises(WarplensError, match="already running here.*--torch FILE"):
        with wl.profile(torch=True):
            pass
    theirs.stop()
    assert torch.profiler.profile.log == ["start", "stop"]
    assert session.active() is None


def test_options_that_torch_does_not_know_are_refused(torch: Any) -> None:
    with pytest.raises(WarplensError, match="with_stak"):
        with wl.profile(torch={"with_stak": True}):
            pass
    assert session.active() is None


def test_without_torch_the_reason_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = importlib.util.find_spec
    monkeypatch.setattr(
        "warplens.profiling.torch_recorder.find_spec", lambda name: None if name == "torch" else real(name)
    )
    with pytest.raises(WarplensError, match="pip install torch"):
        with wl.profile(torch=True):
            pass
    script = tmp_path / "script.py"
    script.write_text("raise SystemExit('must not run')")
    assert main(["run", "--torch", "-o", str(tmp_path / "t.warplens"), str(script)]) == 1
    with pytest.raises(WarplensError, match="torch=True"):
        _ = wl.profile().torch


def test_warplens_run_prints_the_operators_and_names_the_files(
    run: Run, torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record(run, monkeypatch)
    script = tmp_path / "script.py"
    script.write_text("import torch")
    command = ["run", "--torch", "-o", str(tmp_path / "t.warplens")]
    assert main([*command, str(script)]) == 0
    said = capsys.readouterr().err
    assert "op::mul" in said
    assert "recorded by warplens" in said
    assert "aligned with torch: ±" in said
    assert "t.pftrace" in said
    assert main([*command, str(script)]) == 1, "existing files are not overwritten"
    (tmp_path / "t.warplens").unlink()
    assert main([*command, str(script)]) == 1, "nor is the merged file"
    assert main([*command, "--force", "--json", str(script)]) == 0
    document = json.loads(capsys.readouterr().out)
    (companion,) = document["companions"]
    assert {one["name"] for one in companion["torch"]["operators"]} == {"op::add", "op::mul", "cudaLaunchKernel"}


def test_launches_that_cannot_be_aligned_leave_the_torch_trace(
    torch: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    other = Run(9)
    other.launch("another")
    record(other, monkeypatch)
    with wl.profile(tmp_path / "t.warplens", torch=True) as profile:
        pass
    assert "no kernel called another" in profile.torch.problem
    assert "not aligned" in capsys.readouterr().err
    kernels = TraceProcessor(tmp_path / "t.pftrace").query("select name from slice where category = 'kernel'")
    assert len(kernels) == 12


def test_the_host_says_when_each_launch_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """What matching rests on: the time of `add`, in the trace's own document."""
    from tests.support.builders import Span, make_trace
    from warplens.launch import collected_run

    kept: list[Any] = []

    def decoded(capture: Any, **options: Any) -> Trace:
        kept.extend(capture.launches)
        return make_trace([Span("a", 0, 1)])

    class Pending:
        def collect(self) -> Any:
            import numpy as np

            from warplens.record.capture import Launch

            return Launch("k", (1, 1, 1), (32, 1, 1), {}, 0, np.zeros(128, np.uint8), extra={"store": "now"})

    monkeypatch.setattr("warplens.profiling.profile.decode", decoded)
    times = iter([111, 222])
    monkeypatch.setattr(collected_run.time, "time_ns", lambda: next(times))
    with wl.profile() as profile:
        profile.add(Pending())
        profile.add(Pending())
    assert [launch.extra for launch in kept] == [{"store": "now", "host_ns": 111}, {"store": "now", "host_ns": 222}]


def test_operators_nest_as_torch_counts_them() -> None:
    def on_cpu(name: str, start: int, end: int, category: str = "cpu_op", **args: Any) -> Slice:
        return Slice(name, category, (1, 1), EPOCH + start, EPOCH + end, args)

    slices = [
        on_cpu("step", 0, 100, "user_annotation"),
        on_cpu("linear", 10, 60),
        on_cpu("mm", 20, 50),
        on_cpu("cudaLaunchKernel", 30, 40, "cuda_runtime", correlation=1),
        on_cpu("cudaLaunchKernel", 70, 80, "cuda_runtime", correlation=2),
        Slice("gemm", "kernel", (0, 7), EPOCH + 90, EPOCH + 490, {"correlation": 1}),
        Slice("mine", "kernel", (0, 7), EPOCH + 500, EPOCH + 530, {"correlation": 2}),
        Slice("step", "gpu_user_annotation", (0, 7), EPOCH + 90, EPOCH + 530, {}),
    ]
    memory = [
        MemoryEvent((1, 1), EPOCH + 25, 0, 512, 512, 2048),
        MemoryEvent((1, 1), EPOCH + 65, 0, -512, 0, 2048),
        MemoryEvent((1, 1), EPOCH + 66, -1, 64, 64, 0),
    ]
    found = summarise(TorchTrace("t", slices, memory))
    rows = {one.name: one for one in found.operators}
    assert {name: (row.cpu_ns, row.self_cpu_ns, row.cuda_ns, row.self_cuda_ns) for name, row in rows.items()} == {
        "step": (100, 40, 430, 30),
        "linear": (50, 20, 400, 0),
        "mm": (30, 20, 400, 400),
        "cudaLaunchKernel": (20, 20, 0, 0),
    }
    assert {name: (row.cuda_bytes, row.self_cuda_bytes, row.cpu_bytes) for name, row in rows.items()} == {
        "step": (0, -512, 64),
        "linear": (512, 0, 0),
        "mm": (512, 512, 0),
        "cudaLaunchKernel": (0, 0, 0),
    }
    assert [one.name for one in found.kernels] == ["gemm", "mine"]
    assert found.peak_bytes == {0: 512, -1: 64}


def test_an_operator_that_only_calls_itself_counts_once() -> None:
    """As in PyTorch: `aten::mul` with a number calls `aten::mul` with a tensor."""
    slices = [
        Slice("aten::mul", "cpu_op", (1, 1), EPOCH, EPOCH + 100, {}),
        Slice("aten::mul", "cpu_op", (1, 1), EPOCH + 10, EPOCH + 90, {}),
        Slice("cudaLaunchKernel", "cuda_runtime", (1, 1), EPOCH + 20, EPOCH + 30, {"correlation": 1}),
        Slice("mul", "kernel", (0, 7), EPOCH + 40, EPOCH + 47, {"correlation": 1}),
    ]
    rows = {one.name: one for one in summarise(TorchTrace("t", slices)).operators}
    one = rows["aten::mul"]
    assert (one.calls, one.cpu_ns, one.self_cpu_ns, one.cuda_ns, one.self_cuda_ns) == (1, 100, 90, 7, 7)


def test_what_warplens_did_itself_is_one_row() -> None:
    """Its buffers are cleared by operators of PyTorch, which must not be taken for the program's."""

    def on_cpu(name: str, start: int, end: int, category: str = "cpu_op", **args: Any) -> Slice:
        return Slice(name, category, (1, 1), EPOCH + start, EPOCH + end, args)

    slices = [
        on_cpu("step", 0, 100, "user_annotation"),
        on_cpu("[warplens]", 10, 60, "user_annotation"),
        on_cpu("aten::zeros", 20, 50),
        on_cpu("cudaLaunchKernel", 30, 40, "cuda_runtime", correlation=1),
        on_cpu("aten::zeros", 70, 80),
        Slice("fill", "kernel", (0, 7), EPOCH + 90, EPOCH + 490, {"correlation": 1}),
        Slice("fill", "kernel", (0, 7), EPOCH + 500, EPOCH + 530, {"correlation": 2}),
    ]
    memory = [
        MemoryEvent((1, 1), EPOCH + 25, 0, 4096, 4096, 8192, address=64),
        MemoryEvent((1, 1), EPOCH + 75, 0, 100, 4196, 8192, address=9000),
        MemoryEvent((1, 1), EPOCH + 85, 0, -4096, 100, 8192, address=64),
        MemoryEvent((1, 1), EPOCH + 86, 0, 200, 300, 8192, address=64),
    ]
    found = summarise(TorchTrace("t", slices, memory))
    rows = {one.name: (one.calls, one.cpu_ns, one.self_cpu_ns, one.cuda_ns, one.cuda_bytes) for one in found.operators}
    assert rows == {
        "step": (1, 100, 40, 400, 300),
        "[warplens]": (1, 50, 50, 400, 4096),
        "aten::zeros": (1, 10, 10, 0, 100),
    }
    assert {one.name: (one.calls, one.cuda_ns) for one in found.kernels} == {"[warplens]": (1, 400), "fill": (1, 30)}
    assert found.peak_bytes == {0: 300}


def test_info_describes_a_torch_trace(run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info", "--torch", str(tmp_path / "exported.json")]) == 0
    assert "op::add" in capsys.readouterr().out
    assert main(["info", "--torch", str(tmp_path / "exported.json"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["operators"]) == 3


@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="needs torch")
def test_a_real_torchs_table_is_ours(tmp_path: Path) -> None:
    """Forward and backward of a transformer layer: every column of every row."""
    import torch

    layer, x = torch.nn.TransformerEncoderLayer(32, 2, 64), torch.randn(5, 3, 32)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as real:
        for _ in range(2):
            with torch.profiler.record_function("step"):
                layer(x).sum().backward()
    real.export_chrome_trace(str(tmp_path / "torch.json"))
    mine = {one.name: one for one in summarise(read_torch(tmp_path / "torch.json")).operators}
    theirs = {row.key: row for row in real.key_averages() if row.key != "[memory]"}
    assert set(theirs) == set(mine)
    for name, row in theirs.items():
        one = mine[name]
        assert (one.calls, one.cpu_bytes, one.self_cpu_bytes) == (
            row.count,
            row.cpu_memory_usage,
            row.self_cpu_memory_usage,
        )
        assert one.cpu_ns == pytest.approx(1000 * row.cpu_time_total, abs=1000)
        assert one.self_cpu_ns == pytest.approx(1000 * row.self_cpu_time_total, abs=1000)
