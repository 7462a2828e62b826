"""Kernels for GPUs that warplens does not record compile and run as if they had no marks, and the user is told."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

triton = pytest.importorskip("triton", reason="triton is not installed")

import triton.language as tl  # noqa: E402
from triton.backends.compiler import GPUTarget  # noqa: E402
from triton.compiler import ASTSource  # noqa: E402

import warplens.triton as wlt  # noqa: E402
from warplens.frontends.triton.launch_hook import LaunchHook  # noqa: E402
from warplens.frontends.triton.weaving_compiler import Recipe, WeavingCompiler  # noqa: E402
from warplens.weave.weaving import Weaving  # noqa: E402

pytest.importorskip("triton.backends.amd.compiler", reason="this Triton has no back end for AMD's GPUs")


@triton.jit
def marked(source, out, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        x = tl.load(source + at, mask=at < n)
    wlt.instant("loaded")
    wlt.value("n", n)
    wlt.arrive("full", 3)
    wlt.anchor()
    tl.store(out + at, x, mask=at < n)


@pytest.mark.parametrize(("arch", "lanes"), [("gfx942", 64), ("gfx1100", 32), ("gfx1250", 32)])
def test_marks_leave_nothing_in_a_kernel_for_another_gpu(
    arch: str, lanes: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    source = ASTSource(marked, {"source": "*fp32", "out": "*fp32", "n": "i32"}, {"BLOCK": 256})
    kernel = triton.compile(source, target=GPUTarget("hip", arch, lanes))
    assert "inline_asm" not in kernel.asm["ttir"]
    assert "warplens" not in kernel.asm["amdgcn"]


def test_a_kernel_for_another_gpu_runs_as_it_is_and_the_user_is_told() -> None:
    notes: list[tuple[str, str]] = []
    seen: list[str] = []
    session: Any = SimpleNamespace(
        note=lambda *note: notes.append(note), run=SimpleNamespace(passed_by=seen.append), counts_all=True
    )
    launcher = object()
    metadata = SimpleNamespace(name="marked", target=GPUTarget("hip", "gfx942", 64))
    kernel = SimpleNamespace(metadata=metadata, _run=launcher)
    LaunchHook(session, WeavingCompiler(Recipe(Weaving()))).watch(kernel)
    assert kernel._run is launcher
    assert seen == ["marked"]
    text = (
        "not recorded: it runs on gfx942, and warplens records launches on NVIDIA GPUs only; "
        "marks for AMD's GPUs compile, but have not run on hardware"
    )
    assert notes == [("marked", text)]
