"""Barriers of CuTe DSL kernels: marks by hand, run in the interpreter, and automatic ones in a real pipeline."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

# The DSL reads the architecture that this sets when it is imported.
from tests.support.cute_gpu import Gpu, compile_cute, install

# isort: split
from cutlass import Float16, Int32
from cutlass.cute.runtime import make_fake_compact_tensor, make_fake_stream

import warplens as wl
import warplens.cute as wlc
from tests.support.cute_examples import example
from tests.support.cute_kernels import fake, run_handed_over
from tests.support.golden_ptx import ptxas
from warplens.auto.ptx import mark_ptx
from warplens.auto.rules import Auto
from warplens.errors import UsageError
from warplens.frontends.cute.mark_arguments import whole_number
from warplens.weave.weaver import weave
from warplens.weave.weaving import SymbolBuffer, Weaving

STEPS = 5


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Gpu:
    return install(monkeypatch)


def test_hand_marks_tell_who_waited_for_whom(gpu: Gpu) -> None:
    prof = wlc.buffer()
    compiled = compile_cute(run_handed_over, fake(64), Int32(STEPS), prof)
    y = gpu.array(np.zeros(64, np.float32))
    gpu.attach(compiled, 1, 64, [y, STEPS])
    with wl.profile() as profile:
        compiled(fake(64), Int32(STEPS), prof)
    assert gpu.read(y, np.float32, 64)[32:].tolist() == [float(sum(range(STEPS)))] * 32
    trace = profile.trace
    warp, region = trace.numpy("warp"), trace.spans["region"].to_pylist()
    found = {
        (region[edge["wait"]], int(warp[edge["wait"]]), region[edge["arrival_record"]], edge["kind"])
        for edge in trace.edges.to_pylist()
    }
    assert found == {("full", 1, "filled", "arrive"), ("empty", 0, "used", "arrive")}
    tiles = [row for row in trace.spans.to_pylist() if row["region"] == "tile"]
    assert [row["kind"] for row in tiles] == ["span"] * STEPS + ["instant"] * STEPS
    ends = [row["start_cycle"] for row in tiles[STEPS:]]
    assert [row["start_cycle"] + row["dur_cycles"] for row in tiles[:STEPS]] == ends


def test_a_barrier_must_be_a_pointer_or_a_whole_number() -> None:
    with pytest.raises(UsageError, match="give a pointer in shared memory or a whole number"):
        whole_number("full", 1.5)


def test_automatic_marks_record_the_barriers_of_a_pipeline(tmp_path: Path) -> None:
    """The example's GEMM: TMA loads, wgmma, and PipelineTmaAsync between them."""
    gemm = example("gemm")
    tensors = [make_fake_compact_tensor(Float16, (512, 512), stride_order=(1, 0), assumed_align=16) for _ in range(3)]
    compiled = compile_cute(gemm.run, *tensors, wlc.buffer(), make_fake_stream(), False)
    marked = mark_ptx(compiled.__ptx__.rstrip("\0"), Auto.of(True)).text
    words = re.findall(r"// @warplens S (\S+) (\w+) (\S+) (\S+)", marked)
    done = [operation for _, operation, _, _ in words]
    tries = len(re.findall(r"mbarrier\.try_wait", marked))
    assert done.count("wait") >= tries > 1
    assert {"wait", "copy"} <= set(done)
    assert {"arrive", "remote_arrive"} & set(done)
    assert all(parity != "-" for _, operation, _, parity in words if operation == "wait")
    woven = weave(marked, buffer=SymbolBuffer(), how=Weaving())
    (tmp_path / "k.ptx").write_text(woven.text)
    subprocess.run([ptxas(), "-arch=sm_90a", "k.ptx", "-o", "k.cubin"], cwd=tmp_path, check=True)
