"""`warplens run` on ordinary programs on a real GPU: the same output, every kernel of theirs in the trace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warplens as wl

torch = pytest.importorskip("torch", reason="torch is not installed")
if not torch.cuda.is_available():
    pytest.skip("no CUDA GPU here", allow_module_level=True)

pytestmark = pytest.mark.gpu
ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = {
    "fused_attention": ["--heads", "8", "--length", "512"],
    "transformer_block": ["--steps", "2", "--batch", "2", "--length", "256"],
    "cupy_script": ["256"],
    "cute_script": ["256"],
}
NEEDS = {"cupy_script": "cupy", "cute_script": "cutlass.cute"}

KERNELS = {
    "fused_attention": {"causal_attention"},
    "cupy_script": {"matmul", "smooth", "row_sums"},
    "cute_script": {"matmul", "row_sums"},
}
"""Those of the program's own."""


def start(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    env = {**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    env |= {"TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "TRITON_CACHE_DIR": str(folder / "triton")}
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


def program_of(name: str) -> list[str]:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"{NEEDS[name]} is not installed")
    return [str(ROOT / "examples" / "auto" / f"{name}.py"), *PROGRAMS[name]]


def files(folder: Path) -> set[Path]:
    return {file for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_prints_what_it_prints_without_and_leaves_a_trace(name: str, tmp_path: Path) -> None:
    program = program_of(name)
    plain = start(tmp_path, *program)
    assert plain.returncode == 0, plain.stderr
    cached = files(tmp_path / "inductor")
    marked = start(tmp_path, "-m", "warplens", "run", "--auto", "-o", "t.warplens", *program)
    assert (marked.returncode, marked.stdout) == (0, plain.stdout), marked.stderr
    trace = wl.load(tmp_path / "t.warplens")
    assert trace.meta.losses.records_lost == 0
    assert any(region.startswith("load") for region in trace.regions)
    assert files(tmp_path / "inductor") == cached
    assert not [file for file in cached if b"@warplens" in file.read_bytes()]
    if not cached:
        # Where Inductor's caches are as they were, so is the next run, and it takes long.
        assert start(tmp_path, *program).stdout == plain.stdout


@pytest.mark.parametrize("name", KERNELS)
def test_all_accounts_for_the_life_of_each_warp(name: str, tmp_path: Path) -> None:
    program = program_of(name)
    options = ["--auto", "all", "--launches", "3", "--least-occupancy", "0", "--json", "-o", "all.warplens"]
    done = start(tmp_path, "-m", "warplens", "run", *options, *program)
    assert done.returncode == 0, done.stderr
    kernels = json.loads(done.stdout)["kernels"]
    assert {row["kernel"] for row in kernels} == KERNELS[name]
    for row in kernels:
        print(row["kernel"], row["covered_least"], row["covered_median"])
    assert min(row["covered_least"] for row in kernels) >= 0.9, kernels


def test_the_list_has_times_of_all_kernels_and_says_which_can_be_marked(tmp_path: Path) -> None:
    program = str(ROOT / "examples" / "auto" / "fused_attention.py")
    done = start(tmp_path, "-m", "warplens", "run", "--list-kernels", "--json", program, "--repeat", "4")
    document = json.loads(done.stdout)
    rows = {row["kernel"]: row for row in document["kernels"]}
    assert (document["timed"], rows["causal_attention"]["launches"]) == (True, 4)
    assert rows["causal_attention"]["markable"]
    assert rows["causal_attention"]["total_ns"] > 0
    assert any(not row["markable"] and "compiled ahead of time" in row["reason"] for row in rows.values())
