"""Whatever the weaver fails on, the program goes on with the plain kernel."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import warplens as wl
from tests.support.paths import ROOT
from warplens.auto.rules import Auto
from warplens.errors import WarplensError
from warplens.frontends.intercept import woven_module
from warplens.frontends.intercept.woven_module import Unavailable, twin_of
from warplens.ptx import tree
from warplens.weave.weaving import Weaving

NVCCS = [n for n in (shutil.which("nvcc"), *os.environ.get("WARPLENS_NVCC", "").split(os.pathsep)) if n]
COMPILE = ("-std=c++17", "-arch=sm_90")
MATMUL = ROOT / "examples" / "cuda" / "matmul.cu"

PTX = (
    ".version 8.0\n.target sm_80\n.address_size 64\n"
    ".visible .entry k(.param .u64 p)\n{\nst.global.u32 [0], 1;\nret;\n}\n"
)


def test_a_bug_in_the_weaver_leaves_the_kernel_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: Any, **named: Any) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(woven_module, "weave", fail)
    with pytest.raises(Unavailable, match=r"the weaver failed: ZeroDivisionError\('a bug'\)"):
        twin_of(PTX, "k", Auto.of("stores"), Weaving(), 0)


def test_ptx_that_cannot_be_parsed_leaves_the_kernel_plain() -> None:
    with pytest.raises(Unavailable, match="PTX line 6"):
        twin_of(PTX.replace("st.global", "!st.global"), "k", Auto.of("stores"), Weaving(), 0)


def test_the_candidates_for_a_weaving_share_what_was_parsed_and_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[str] = []
    original = tree._Parser.module
    monkeypatch.setattr(tree._Parser, "module", lambda parser: parsed.append("") or original(parser))
    woven_module._marked.cache_clear()
    texts = [
        woven_module.marked_text(PTX, "k", Auto.of("stores"), how, registers)[0].text
        for how in (Weaving(store="now"), Weaving(store="late"))
        for registers in (0, 40)
    ]
    assert len(parsed) <= 3, "plain, for the marks, and with marks"
    assert len(set(texts)) == 4
    assert [".maxnreg 40" in text for text in texts] == [False, True] * 2
    assert all(text.count("k_wl_buffer") >= 1 for text in texts)


def weaver_bug(*arguments: Any, **named: Any) -> None:
    raise ZeroDivisionError("a bug")


def test_a_bug_in_the_weaver_leaves_a_triton_kernel_plain(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    from tests.support import plain_kernels, stepped_kernel
    from tests.support.fake_gpu import fake_gpu
    from warplens.frontends.triton import stages

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(stages, "weave", weaver_bug)
    for kernel in (plain_kernels.add, stepped_kernel.stepped):
        monkeypatch.setattr(kernel, "device_caches", type(kernel.device_caches)(kernel.device_caches.default_factory))
    with fake_gpu(monkeypatch) as gpu:

        def add() -> None:
            x, out = gpu.tensor(np.arange(256, dtype=np.float32)), gpu.tensor(np.zeros(256, np.float32))
            plain_kernels.add[(1,)](x, x, out, 256, 256)
            np.testing.assert_array_equal(out.numpy(), x.numpy() * 2)

        def by_hand() -> None:
            source, target = stepped_kernel.run(gpu, blocks=1)
            np.testing.assert_array_equal(target.numpy(), source.numpy() * 2 + 3)

        for run, options in ((add, {"auto": "all"}), (by_hand, {})):
            with pytest.raises(WarplensError, match="no kernel was profiled"), wl.profile(**options):
                run()
            assert "runs unmarked: the weaver failed: ZeroDivisionError('a bug')" in capsys.readouterr().err
            with pytest.raises(WarplensError, match="the weaver failed"), wl.profile(strict=True, **options):
                run()


def test_a_bug_in_the_weaver_leaves_a_cuda_module_its_direct_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    from warplens.frontends.cuda import module as cuda_module

    monkeypatch.setattr(cuda_module, "compile_ptx", lambda *given: PTX)
    monkeypatch.setattr(cuda_module.woven_build, "weavable", lambda text: True)
    monkeypatch.setattr(cuda_module.woven_build, "load", weaver_bug)
    monkeypatch.setattr(cuda_module, "driver", lambda: SimpleNamespace(context=lambda: 1))
    made = cuda_module.Module("source", "k.cu", "sm_90", (), woven=True)
    assert made.ptx == PTX
    assert made.woven(Weaving()) is None
    assert made.ptx is None
    assert made.problem == "its marks are compiled, not woven: the weaver failed: ZeroDivisionError('a bug')"


@pytest.mark.skipif(not NVCCS, reason="nvcc is not installed")
def test_a_bug_in_the_weaver_leaves_an_nvcc_program_its_direct_marks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    from warplens.frontends.nvcc import step_runner

    monkeypatch.setattr(step_runner, "weave", weaver_bug)
    command = [*COMPILE, "-cubin", str(MATMUL), "-o", str(tmp_path / "x.cubin")]
    assert step_runner.NvccCall(NVCCS[0], command).run() == 0
    assert (tmp_path / "x.cubin").stat().st_size > 1000
    assert "its marks are compiled, not woven: the weaver failed: ZeroDivisionError('a bug')" in capfd.readouterr().err
