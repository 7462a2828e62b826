"""PTX of kernels that were loaded unseen, from the file of the library that they are in."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.cpp_launches import run_scenario
from warplens.frontends.driver_calls.loaded_code import is_known_without_ptx
from warplens.frontends.driver_calls.mapped_programs import kernels_in_file

pytestmark = pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
SOURCE = """
extern "C" __global__ void vector_add(const float* a, const float* b, float* c, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) c[i] = a[i] + b[i];
}
"""


def library(folder: Path, name: str, text: str, *options: str) -> Path:
    (folder / f"{name}.cu").write_text(text)
    made = folder / f"{name}.so"
    flags = ["-shared", "-Xcompiler", "-fPIC", "-cudart", "static"]
    command = ["nvcc", *(options or ["-arch=sm_90", "-lineinfo"]), *flags, str(folder / f"{name}.cu"), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    return made


def test_the_kernels_of_a_library_are_found(tmp_path: Path) -> None:
    more = SOURCE + SOURCE.replace("vector_add", "vector_sub").replace("a[i] + b", "a[i] - b")
    found = kernels_in_file(str(library(tmp_path, "two", more)), "9.0")
    assert set(found) == {"vector_add", "vector_sub"}
    assert all(".target sm_90" in text for texts in found.values() for text in texts)
    assert kernels_in_file(str(tmp_path / "two.so"), "8.0") == {}
    plain = library(tmp_path, "plain", SOURCE, "-gencode", "arch=compute_90,code=sm_90")
    assert kernels_in_file(str(plain), "9.0") == {}
    with_lines = library(tmp_path, "lines", SOURCE, "-gencode", "arch=compute_90,code=sm_90", "-lineinfo")
    (text,) = kernels_in_file(str(with_lines), "9.0")["vector_add"]
    assert "ld.global" in text, "ptxas puts the PTX into machine code with line information"


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh", b"\x7fELF\x02" + bytes(200), b"\x7fELF\x01"])
def test_other_files_have_no_kernels(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    assert kernels_in_file(str(path), "9.0") == {}
    assert kernels_in_file(str(tmp_path / "missing"), "9.0") == {}


@pytest.mark.parametrize(
    ("name", "known"),
    [("libcublasLt.so.13", True), ("libtorch_cuda.so", True), ("libcudnn_ops_infer.so.9", True), ("libnccl.so.2", True),
     ("libcustom_ops.so", False), ("libtorchvision_ops", False), ("program", False), ("", False)],
)  # fmt: skip
def test_only_libraries_of_vendors_are_passed_over_in_silence(name: str, known: bool) -> None:
    assert is_known_without_ptx(name) == known


def test_a_library_that_was_used_before_the_profile_is_recorded(tmp_path: Path) -> None:
    told = run_scenario("warm", str(library(tmp_path, "one", SOURCE)))
    assert told["fired"] == [False, True, True]
    assert "load one.cu:4" in told["regions"]


def test_two_libraries_with_a_kernel_of_one_name_are_not_mixed_up(tmp_path: Path) -> None:
    other = library(tmp_path, "other", SOURCE.replace("a[i] + b[i]", "a[i] + b[i] + 1.0f"))
    told = run_scenario("warm", str(library(tmp_path, "one", SOURCE)), str(other))
    assert told["fired"] == [False, False, False]
    assert "several libraries have a kernel of this name" in told["stderr"]
