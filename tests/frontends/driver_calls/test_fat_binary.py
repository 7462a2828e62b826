"""Fat binaries that nvcc wrote, with every compression it knows."""

from __future__ import annotations

import shutil
import struct
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from warplens.frontends.driver_calls.fat_binary import MAGIC, best_ptx, ptx_entries

nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc")
SOURCE = "__global__ void scale(float* a, float s) { a[threadIdx.x] *= s; }"
TWO = ["-gencode", "arch=compute_80,code=compute_80", "-gencode", "arch=compute_90,code=[sm_90,compute_90]"]


def fat_binary(folder: Path, *options: str) -> bytes:
    source, made = folder / "k.cu", folder / "k.fatbin"
    source.write_text(SOURCE)
    subprocess.run(["nvcc", *options, "-fatbin", str(source), "-o", str(made)], check=True, capture_output=True)
    return made.read_bytes()


@nvcc
@pytest.mark.parametrize("mode", ["default", "size", "speed", "balance", "none"])
def test_the_text_is_the_same_with_every_compression(tmp_path: Path, mode: str) -> None:
    image = fat_binary(tmp_path, *TWO, f"--compress-mode={mode}")
    assert [entry.arch for entry in ptx_entries(image)] in ([80, 90], [90, 80])
    for capability, target in (("9.0", "sm_90"), ("12.0", "sm_90"), ("8.9", "sm_80")):
        text = best_ptx(image, capability)
        assert text is not None
        assert f".target {target}" in text
        assert "_Z5scalePff" in text
    assert best_ptx(image, "7.5") is None


@nvcc
def test_machine_code_alone_has_no_ptx(tmp_path: Path) -> None:
    image = fat_binary(tmp_path, "-gencode", "arch=compute_90,code=sm_90")
    assert best_ptx(image, "9.0") is None


@nvcc
def test_ptx_for_older_devices_is_not_taken_for_the_code_that_runs(tmp_path: Path) -> None:
    image = fat_binary(tmp_path, "-gencode", "arch=compute_80,code=compute_80", "-gencode",
                       "arch=compute_90,code=sm_90")  # fmt: skip
    with pytest.raises(ValueError, match="its PTX is for compute_80, and this GPU runs its code for sm_90"):
        best_ptx(image, "9.0")
    text = best_ptx(image, "10.0")
    assert text is not None, "machine code for sm_90 does not run there, so the PTX does"
    assert ".target sm_80" in text


@nvcc
def test_ptx_for_one_architecture_alone_is_not_taken_elsewhere(tmp_path: Path) -> None:
    image = fat_binary(tmp_path, "-gencode", "arch=compute_90a,code=compute_90a")
    text = best_ptx(image, "9.0")
    assert text is not None
    assert ".target sm_90a" in text
    assert best_ptx(image, "10.0") is None


@pytest.mark.parametrize(
    "image", [b"", b"\x7fELF" + bytes(60), b"PK", struct.pack("<IHHQ", MAGIC, 1, 16, 1 << 40) + bytes(8)]
)
def test_other_bytes_have_no_ptx(image: bytes) -> None:
    assert best_ptx(image, "9.0") is None


@nvcc
def test_damaged_fat_binaries_are_refused_or_empty(tmp_path: Path) -> None:
    image = fat_binary(tmp_path, *TWO)
    own = {best_ptx(image, device) for device in ("8.0", "9.0")}
    for cut in range(0, len(image), 37):
        with suppress(ValueError):
            assert best_ptx(image[:cut] + bytes(len(image) - cut), "9.0") in (None, *own)
