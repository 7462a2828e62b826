"""Programs that run nvcc themselves and load what it wrote: `warplens nvcc` in its place keeps the PTX."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.cpp_launches import run_scenario
from tests.support.paths import ROOT
from warplens.frontends.assembled_ptx import ptx_store
from warplens.sass.cubin_file import read_cubin_file

pytestmark = pytest.mark.skipif(not shutil.which("nvcc") or not shutil.which("g++"), reason="needs nvcc and g++")

VECTOR_ADD = """\
extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""
TEMPLATES = """\
#include <cstdint>
template <int N> __global__ void __launch_bounds__(128) sum(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0;
  auto add = [&] __device__ (int j) { s += x[(i + j) % n]; };
  for (int j = 0; j < N; ++j) add(j);
  if (i < n) y[i] = s;
}
static void __instantiate_kernel() { auto ptr = reinterpret_cast<void*>(&sum<16>); }
"""
DEEP_GEMM = (
    "-std=c++20 --diag-suppress=39,161,174,177,186,940 --ptxas-options=--register-usage-level=10 "
    "--ptxas-options=--verbose,--warn-on-local-memory-usage -Xcompiler -rdynamic -I. --gpu-architecture=sm_90a "
    "--compiler-options=-fPIC,-O3,-fconcepts,-Wno-deprecated-declarations,-Wno-abi -O3 --expt-relaxed-constexpr "
    "--expt-extended-lambda"
)
"""As csrc/jit/compiler.hpp of DeepGEMM builds them."""
TORCH = (
    "-D__CUDA_NO_HALF_OPERATORS__ -DTORCH_EXTENSION_NAME=own --expt-relaxed-constexpr -gencode "
    "arch=compute_90,code=compute_90 -gencode=arch=compute_90,code=sm_90 --compiler-options '-fPIC' -std=c++17 "
    "--threads 2 -MD -MF {folder}/k.o.d"
)
"""As torch.utils.cpp_extension builds them."""
FLASH_INFER = (
    "--generate-dependencies-with-compile -MF {folder}/k.o.d -DPy_LIMITED_API=0x03090000 -D_GLIBCXX_USE_CXX11_ABI=1 "
    "-isystem . --compiler-options=-fPIC --expt-relaxed-constexpr -static-global-template-stub=false -std=c++17 "
    "-gencode=arch=compute_90a,code=sm_90a -O3 -DNDEBUG -use_fast_math --threads=1"
)
"""As flashinfer/jit/cpp_ext.py builds them."""


@pytest.fixture(name="cache", autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("WARPLENS_KEEP_PTX", raising=False)
    return tmp_path / "cache" / "warplens" / "ptx"


@pytest.fixture(name="compiler")
def _compiler(tmp_path: Path) -> Path:
    """The script that `pip install warplens` makes."""
    made = tmp_path / "bin" / "warplens-nvcc"
    made.parent.mkdir()
    start = "from warplens.commands import nvcc_entry; nvcc_entry()"
    made.write_text(f"#!/bin/sh\nPYTHONPATH={ROOT}/src exec {sys.executable} -c '{start}' \"$@\"\n")
    made.chmod(0o755)
    return made


def entries(text: str) -> list[str]:
    return re.findall(r"\.entry\s+(\w+)", text)


def test_a_jit_inside_a_profile_has_its_kernels_woven(tmp_path: Path, compiler: Path) -> None:
    source, made = tmp_path / "kernel.cu", tmp_path / "kernel.cubin"
    source.write_text(VECTOR_ADD)
    told = run_scenario("jit", str(source), str(compiler), str(made), *DEEP_GEMM.split())
    assert told["fired"] == [True]
    assert "load kernel.cu:3" in told["regions"], "line information is asked for"
    again = run_scenario("jit", str(source), "true", str(made))
    assert again["fired"] == [True], "a JIT's own cache gives code whose PTX was kept in an earlier run"


def test_line_information_in_machine_code_has_its_ptx(tmp_path: Path) -> None:
    source, made = tmp_path / "kernel.cu", tmp_path / "kernel.cubin"
    source.write_text(VECTOR_ADD)
    told = run_scenario("jit", str(source), "nvcc", str(made), "-arch=sm_90", "-lineinfo")
    assert told["fired"] == [True]
    assert [name for name in told["regions"] if name.startswith("load vector_add+")]


def test_code_of_another_compiler_says_how_to_have_it_woven(tmp_path: Path) -> None:
    source, made = tmp_path / "kernel.cu", tmp_path / "kernel.cubin"
    source.write_text(VECTOR_ADD)
    told = run_scenario("jit", str(source), "nvcc", str(made), "-arch=sm_90")
    assert told["fired"] == [False]
    assert "there is only machine code; let `warplens nvcc --auto` compile it" in told["stderr"]
    assert told["stderr"].count("\n") == 1


def test_kept_ptx_that_is_damaged_is_named(tmp_path: Path, compiler: Path, cache: Path) -> None:
    source, made = tmp_path / "kernel.cu", tmp_path / "kernel.cubin"
    source.write_text(VECTOR_ADD)
    subprocess.run([compiler, "--auto", "-cubin", "-arch=sm_90", source, "-o", made], check=True)
    (kept,) = cache.iterdir()
    kept.write_bytes(kept.read_bytes()[:40])
    told = run_scenario("jit", str(source), "true", str(made))
    assert told["fired"] == [False]
    assert f"its PTX in {kept} cannot be read" in told["stderr"]


@pytest.mark.parametrize(
    ("options", "form"),
    [(DEEP_GEMM, "-cubin"), (TORCH, "-c"), (FLASH_INFER, "-shared")],
    ids=["DeepGEMM", "PyTorch", "FlashInfer"],
)
def test_a_librarys_own_command_line_compiles_as_with_nvcc(
    tmp_path: Path, compiler: Path, cache: Path, options: str, form: str
) -> None:
    (tmp_path / "kernel.cu").write_text(TEMPLATES)
    words = [word.strip("'") for word in options.format(folder=tmp_path).split()]
    words += ["--expt-extended-lambda"] * ("--expt-extended-lambda" not in words)
    made = tmp_path / "made.out"
    command = [str(compiler), "--auto", *words, form, str(tmp_path / "kernel.cu"), "-o", str(made)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert made.stat().st_size
    if "k.o.d" in options:
        assert "kernel.cu" in (tmp_path / "k.o.d").read_text()
    (kept,) = cache.iterdir()
    code = made.read_bytes()
    found = ptx_store.find([code]) if form == "-cubin" else gzip.decompress(kept.read_bytes()).decode()
    assert found is not None
    assert entries(found) == ["_Z3sumILi16EEvPKfPfi"]
    assert ".loc" in found


def test_options_in_a_file_and_separate_device_links_work(tmp_path: Path, compiler: Path, cache: Path) -> None:
    (tmp_path / "kernel.cu").write_text(TEMPLATES)
    (tmp_path / "options.txt").write_text("-O3 -arch=sm_90 --expt-extended-lambda -Xcompiler -fPIC")
    subprocess.run([compiler, "--auto", "-optf", "options.txt", "-cubin", "kernel.cu", "-o", "k.cubin"],
                   cwd=tmp_path, check=True)  # fmt: skip
    assert len(list(cache.iterdir())) == 1
    subprocess.run([compiler, "--auto", "--options-file", "options.txt", "-rdc=true", "-c", "kernel.cu", "-o", "k.o"],
                   cwd=tmp_path, check=True)  # fmt: skip
    subprocess.run([compiler, "--auto", "-arch=sm_90", "-dlink", "k.o", "-o", "link.o"], cwd=tmp_path, check=True)
    assert (tmp_path / "link.o").stat().st_size
    assert len(list(cache.iterdir())) == 1, "code that is linked later is not what a program loads"


def test_machine_code_is_the_same_with_and_without_keeping(tmp_path: Path, compiler: Path) -> None:
    (tmp_path / "kernel.cu").write_text(TEMPLATES)
    for name, command in (("kept", [str(compiler), "--auto"]), ("plain", ["nvcc"])):
        words = ["-cubin", "-arch=sm_90", "--expt-extended-lambda", "-O3", str(tmp_path / "kernel.cu")]
        subprocess.run([*command, *words, "-o", str(tmp_path / name)], check=True)
    kept, plain = (read_cubin_file((tmp_path / name).read_bytes()) for name in ("kept", "plain"))
    assert kept.kernels == plain.kernels != []
    assert [kept.code(name) for name in kept.kernels] == [plain.code(name) for name in plain.kernels]


def test_nothing_is_kept_unless_asked(tmp_path: Path, compiler: Path, cache: Path) -> None:
    (tmp_path / "kernel.cu").write_text(VECTOR_ADD)
    subprocess.run([compiler, "-cubin", "-arch=sm_90", "kernel.cu"], cwd=tmp_path, check=True)
    assert not cache.exists()


def test_a_store_that_cannot_be_written_does_not_stop_the_compiler(tmp_path: Path, compiler: Path) -> None:
    (tmp_path / "kernel.cu").write_text(VECTOR_ADD)
    (tmp_path / "cache").write_text("a file in the place of the folder")
    command = [compiler, "--auto", "-cubin", "-arch=sm_90", "kernel.cu", "-o", "k.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0
    assert (tmp_path / "k.cubin").stat().st_size
    assert "the PTX is not kept for profiles" in done.stderr
