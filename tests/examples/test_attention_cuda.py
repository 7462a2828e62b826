"""The attention examples in CUDA C++: run by g++ against float64, and compiled for every architecture."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.paths import SHIM
from warplens.decode import decode
from warplens.errors import WarplensError
from warplens.record.c_header import PATH
from warplens.record.capture import read_capture

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples" / "attention"
sys.path.insert(0, str(EXAMPLES))

import reference  # noqa: E402

needs_gcc = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
REGIONS = {
    "naive": {"qk", "softmax", "pv", "store"},
    "tiled": {"load q", "load k", "qk", "row sums", "load v", "pv", "store"},
    "flash": {"load q", "wait", "qk", "softmax", "pv", "store"},
}
HEAD = 64


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("attention") / "attention"
    command = ["g++", "-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-pthread", f"-I{SHIM}", f"-I{PATH.parent}"]
    done = subprocess.run(
        [*command, f"-I{EXAMPLES}", str(SHIM / "attention_main.cpp"), "-o", str(out)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return out


def run(
    program: Path,
    folder: Path,
    kernel: str,
    type: str,
    head: int,
    length: int,
    *,
    causal: bool = False,
    scale: float = 1,
) -> tuple[reference.Error, Path]:
    """The kernel's distance from float64 on random data, two heads."""
    rng = np.random.default_rng(head * length)
    queries = 1 if kernel in ("decode", "uncoalesced") else length
    arrays = [rng.standard_normal((2, rows, head), np.float32) * scale for rows in (queries, length, length)]
    stored = {
        "fp32": lambda x: x,
        "fp16": lambda x: x.astype(np.float16),
        "bf16": reference.to_bf16,
    }[type]
    for name, array in zip("qkv", arrays, strict=True):
        stored(array).tofile(folder / name)
    command = [program, kernel, type, str(head), str(length), "2", str(int(causal)), folder]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"exit {done.returncode} (3: a write outside the buffer) {done.stderr}"
    bits = np.uint16 if type == "bf16" else np.float16 if type == "fp16" else np.float32
    found = np.fromfile(folder / "out", bits).reshape(2, queries, head)
    back = reference.from_bf16 if type == "bf16" else lambda x: x
    seen = [back(stored(array)) for array in arrays]
    with np.errstate(all="ignore"):
        return reference.error(back(found), reference.attention(*seen, causal=causal)), folder / "capture.wlcap"


@needs_gcc
@pytest.mark.parametrize(
    ("kernel", "type", "head", "length", "causal"),
    [
        ("naive", "fp32", 64, 37, True),
        ("naive", "bf16", 128, 20, False),
        ("tiled", "fp16", 64, 80, True),
        ("tiled", "fp32", 128, 33, False),
        ("flash", "fp16", 64, 150, False),
        ("flash", "fp16", 128, 100, True),
        ("flash", "bf16", 64, 129, True),
        ("flash", "bf16", 128, 1, False),
        ("decode", "fp16", 128, 100, False),
        ("uncoalesced", "fp16", 64, 37, False),
        ("rows", "fp16", 64, 45, False),
        ("low_occupancy", "fp16", 64, 300, False),
        ("serialised", "fp16", 64, 70, False),
    ],
)
def test_kernels_agree_with_float64_and_mark_what_they_do(
    program: Path, tmp_path: Path, kernel: str, type: str, head: int, length: int, causal: bool
) -> None:
    error, capture = run(program, tmp_path, kernel, type, head, length, causal=causal)
    assert error.within(reference.TOLERANCE[type]), error
    trace = decode(read_capture(capture))
    assert trace.meta.losses.clean
    assert REGIONS.get(kernel, {"store"}) <= {row.region for row in trace.stats()}


@needs_gcc
def test_the_overflowing_softmax_overflows_and_its_trace_says_where(program: Path, tmp_path: Path) -> None:
    error, capture = run(program, tmp_path, "overflowing", "fp16", 64, 64, scale=8)
    assert error.nan + error.inf > 0
    values = decode(read_capture(capture)).select(region="row sum").spans["value"].to_numpy()
    assert len(values) == 4
    assert np.isinf(values).any()
    healthy, _ = run(program, tmp_path, "rows", "fp16", 64, 64, scale=8)
    assert healthy.within(reference.TOLERANCE["fp16"]), "the same data is no trouble with the maximum subtracted"


@pytest.mark.parametrize(
    "arch", ["sm_90a", *(pytest.param(arch, marks=pytest.mark.slow) for arch in ("sm_80", "sm_100a"))]
)
def test_every_kernel_compiles_for(arch: str) -> None:
    from warplens.frontends.cuda.module import kernel_names
    from warplens.frontends.cuda.nvrtc import compile_cubin

    found: set[str] = set()
    try:
        for name, element in (
            ("naive", "float"),
            ("tiled", "bfloat_t"),
            ("flash", "half_t"),
            ("broken/decode", "half_t"),
            ("broken/rows", "half_t"),
        ):
            options = (f"-DELEMENT={element}", f"-DHEAD={HEAD}", f"--include-path={EXAMPLES}", "-DWARPLENS=1")
            source = (EXAMPLES / f"{name}.cu").read_text()
            found |= set(kernel_names(compile_cubin(source, f"{name}.cu", arch, options)))
    except WarplensError as error:
        if "needs NVRTC" in str(error):
            pytest.skip(str(error))
        raise
    assert found >= {"naive", "tiled", "flash", "decode", "uncoalesced", "rows", "low_occupancy", "serialised"}
