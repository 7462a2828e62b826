"""The attention example in Triton: interpreted against float64, and compiled for every architecture."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import EXAMPLES, SUPPORT

pytest.importorskip("triton", reason="triton is not installed")


def test_the_interpreted_kernel_agrees_with_float64_for_any_length() -> None:
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    command = [sys.executable, str(SUPPORT / "interpreted_attention.py")]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert len(done.stdout.splitlines()) == 5


@pytest.mark.parametrize(
    ("capability", "head", "causal", "dtype", "unit"),
    [
        (80, 64, True, "bf16", "mma.sync.aligned.m16n8k16"),
        (90, 128, False, "fp16", "wgmma.mma_async"),
        (100, 64, False, "fp16", "tcgen05.mma"),
    ],
)
def test_it_compiles_to_the_matrix_unit_of(
    capability: int,
    head: int,
    causal: bool,
    dtype: str,
    unit: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    sys.path.insert(0, str(EXAMPLES / "attention"))
    from triton_flash import CONFIGS, triton_flash

    config = CONFIGS[head, causal]
    rows = {"q": config.rows, "k": config.keys, "v": config.keys, "out": config.rows}
    signature = {name: f"tensordesc<{dtype}[1, {size}, {head}]>" for name, size in rows.items()}
    signature |= {"length": "i32", "scale": "fp32"}
    constants = {"BM": config.rows, "BN": config.keys, "HEAD": head, "CAUSAL": causal, "TAIL": True}
    names = triton_flash.arg_names
    source = ASTSource(
        triton_flash,
        {name: signature.get(name, "constexpr") for name in names},
        {(names.index(name),): value for name, value in constants.items()},
        {},
    )
    options = {"num_warps": config.warps, "num_stages": config.stages}
    ptx = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options).asm["ptx"]
    assert unit in ptx
    assert "// @warplens B softmax" in ptx, "the marks are comments until a profile weaves them"
