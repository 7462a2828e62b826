"""Programs of nvcc, woven and with marks that record by themselves: their machine code is found and verified."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.sass_kernels import needs_tools
from warplens.commands import main
from warplens.record.c_header import INCLUDE
from warplens.sass.cubin_file import SassError
from warplens.sass.cuda_tools import known_tool
from warplens.sass.machine_code import verify_code
from warplens.sass.program_binary import read_binary
from warplens.sass.verified_regions import KernelVerification

NVCC = shutil.which("nvcc")
pytestmark = [
    needs_tools,
    pytest.mark.skipif(NVCC is None or known_tool("cuobjdump") is None, reason="needs nvcc and cuobjdump"),
]
SOURCE = """\
#include <warplens.cuh>
__global__ void work(const float* a, float* b, int n, wl::Buffer prof) {
  wl::Kernel kernel(prof);
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  float s = 0;
  for (int j = 0; j < n; j++) {
    float v;
    {
      WL_REGION("load");
      v = a[i + j * 128];
    }
    {
      WL_REGION("math");
      s = s * v + 1.0f;
    }
  }
  b[i] = s;
}
int main() { return 0; }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("nvcc")
    (made / "work.cu").write_text(SOURCE)
    return made


def woven(folder: Path, *options: str) -> Path:
    program = folder / "woven"
    command = [sys.executable, "-m", "warplens", "nvcc", "-O3", *options, "work.cu", "-o", str(program)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    subprocess.run(command, cwd=folder, env=environment, check=True, capture_output=True)
    return program


def check(program: Path) -> KernelVerification:
    (code,) = read_binary(program)
    found = verify_code(code)
    assert found.problem == ""
    assert [one.region for one in found.regions] == ["load", "math"]
    load, math = found["load"], found["math"]
    # nvcc unrolls the loop: four copies and the rest.
    assert load.copies == math.copies == 5
    assert load.counts["load.global"] == 5
    assert math.counts["fp32"] == 5
    assert load.flag == math.flag == ""
    assert "fp32" not in load.moved_out_counts
    assert found.own > 0
    return found


def test_a_woven_program_that_carries_its_ptx_needs_no_line_table(folder: Path) -> None:
    assert "second, identical assembly" in check(woven(folder, "-arch=sm_90")).source


@pytest.mark.parametrize("options", [("-arch=sm_90",), ("-gencode", "arch=compute_90,code=sm_90")])
def test_a_woven_program_with_a_line_table(folder: Path, options: tuple[str, ...]) -> None:
    assert check(woven(folder, "-lineinfo", *options)).source == "the machine code that ran"


def test_a_program_whose_marks_record_by_themselves(folder: Path) -> None:
    command = [str(NVCC), "-O3", "-arch=sm_90", "-lineinfo", "-DWARPLENS=1", f"-I{INCLUDE}", "work.cu", "-o", "direct"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    check(folder / "direct")


def test_what_holds_no_marked_kernel_gives_one_line(folder: Path) -> None:
    with pytest.raises(SassError, match="holds no machine code of a GPU"):
        read_binary("/bin/sh")
    with pytest.raises(SassError, match="neither a program nor a cubin"):
        read_binary(folder / "work.cu")
    with pytest.raises(SassError, match="No such file"):
        read_binary(folder / "nothing")
    stripped = woven(folder, "-gencode", "arch=compute_90,code=sm_90")
    assert read_binary(stripped) == []


TWICE = """\
#include <warplens.cuh>
template <class T> __global__ void twice(T* x, wl::Buffer prof) {
  wl::Kernel kernel(prof);
  WL_REGION("double");
  x[threadIdx.x] *= 2;
}
template __global__ void twice<float>(float*, wl::Buffer);
template __global__ void twice<int>(int*, wl::Buffer);
"""


def test_kernels_of_one_name_are_told_apart_also_in_a_static_library(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "twice.cu").write_text(TWICE)
    targets = [option for sm in ("80", "90") for option in ("-gencode", f"arch=compute_{sm},code=sm_{sm}")]
    command = [sys.executable, "-m", "warplens", "nvcc", "-lineinfo", *targets, "-lib", "twice.cu", "-o", "twice.a"]
    subprocess.run(command, cwd=folder, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, check=True)
    assert main(["verify", str(folder / "twice.a"), "--json"]) == 0
    kernels = json.loads(capsys.readouterr().out)["kernels"]
    assert {one["kernel"] for one in kernels} == {"twice"}
    assert {one["source"].partition(",")[0] for one in kernels} == {
        f"_Z5twiceI{of}EvPT_N2wl6BufferE for sm_{sm}" for of in "fi" for sm in ("80", "90")
    }
