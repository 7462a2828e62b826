"""Cases of benchmarks/reach.py: compilers that run at run time, and extensions that carry machine code alone."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import warplens as wl
from benchmarks.lib import reach_cases
from benchmarks.lib.gpu_programs import KERNELS
from benchmarks.lib.reach_cases import RECORDED, TIMES, Library, NotHere, Row, case

DEEP_GEMM = (
    "-std=c++20 --diag-suppress=39,161,174,177,186,940 --ptxas-options=--register-usage-level=10 "
    "--compiler-options=-fPIC,-O3,-fconcepts,-Wno-deprecated-declarations,-Wno-abi -O3 --expt-relaxed-constexpr "
    "--expt-extended-lambda"
)
"""Options of DeepGEMM's own compiler, without the architecture."""
_NAMES = ("polynomial", "tiled_gemm", "bit_sum")


def _arch() -> str:
    return os.environ.get("REACH_ARCH", "sm_90")


def _machine_code_alone() -> list[str]:
    return ["-gencode", f"arch=compute_{_arch()[3:]},code={_arch()}"]


class Extension(Library):
    """reach.cu as a shared library with machine code alone, built by `compiler`."""

    def __init__(self, out: Path, *compiler: str, name: str) -> None:
        import ctypes

        made = out.parent / name
        flags = ["-O3", "-std=c++17", "-cudart", "static", "-shared", "-Xcompiler", "-fPIC", *_machine_code_alone()]
        if not made.exists():
            subprocess.run([*compiler, *flags, str(KERNELS / "reach.cu"), "-o", str(made)], check=True)
        self._calls = ctypes.CDLL(str(made))


def _needs_nvcc() -> None:
    import shutil

    if not shutil.which("nvcc"):
        raise NotHere("nvcc is not installed")


@case("so_machine_code", "extension (.so) with machine code alone: listed and timed")
def machine_code(out: Path) -> Row:
    _needs_nvcc()
    library = Extension(out, "nvcc", name="libcubin.so")
    profile = wl.profile(auto=True, launches=RECORDED)
    with suppress(wl.WarplensError), profile:
        library.prepare()
        marked = library.run("runtime")
    plain = library.run("runtime")
    listed = {one.kernel: one for one in profile.run.unmarked}
    kernels = {
        name: {"recorded": 0, "launches": one.launches, "slowdown": None, "mean_ns": one.mean_ns,
               "timed": len(one.times_ns), "complete": one.launches == TIMES and bool(one.mean_ns)}
        for name, one in listed.items()
    }  # fmt: skip
    return {"kernels": kernels, "notes": profile.notes, "identical": marked == plain,
            "complete": set(kernels) == set(_NAMES) and all(one["complete"] for one in kernels.values())}  # fmt: skip


@case("so_lineinfo", "extension (.so) with machine code and -lineinfo")
def line_information(out: Path) -> Row:
    _needs_nvcc()
    library = Extension(out, "nvcc", "-lineinfo", name="liblineinfo.so")
    return reach_cases._recorded(library, "runtime", before=library.prepare)


@case("so_warplens_nvcc", "extension (.so) built by `warplens nvcc --auto`")
def built_by_warplens(out: Path) -> Row:
    _needs_nvcc()
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    library = Extension(out, sys.executable, "-m", "warplens", "nvcc", "--auto", name="libkept.so")
    return reach_cases._recorded(library, "runtime", before=library.prepare)


@case("jit_nvcc", "JIT that runs nvcc, as DeepGEMM: `warplens-nvcc` in its place")
def jit(out: Path) -> Row:
    _needs_nvcc()
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    library, cubin = Library(out), out / "kernel.cubin"
    compiler = out / "warplens-nvcc"
    start = "from warplens.commands import nvcc_entry; nvcc_entry()"
    compiler.write_text(f"#!/bin/sh\nexec {sys.executable} -c '{start}' \"$@\"\n")
    compiler.chmod(0o755)

    def before() -> None:
        library.prepare()
        words = [*DEEP_GEMM.split(), f"--gpu-architecture={_arch()}", "-cubin", str(KERNELS / "reach.cu")]
        subprocess.run([str(compiler), *words, "-o", str(cubin)], check=True)
        library._check(library._calls.reach_load(cubin.read_bytes()))

    return reach_cases._recorded(library, "packed", before=before)


@case("helion", "Helion, its autotuner included")
def helion(out: Path) -> Row:
    for name in ("helion", "torch"):
        if importlib.util.find_spec(name) is None:
            raise NotHere(f"{name} is not installed")
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(out / "inductor")
    from benchmarks.lib.reach_helion import run_helion

    return {**run_helion(), "version": importlib.metadata.version("helion")}


def _pallas(kind: str) -> Row:
    for name in ("jax", "jax_plugins"):
        if importlib.util.find_spec(name) is None:
            raise NotHere(f"{name} is not installed")
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    from benchmarks.lib.reach_pallas import run_pallas

    return {**run_pallas(kind), "version": importlib.metadata.version("jax")}


@case("pallas_triton", "JAX Pallas, Triton back end")
def pallas_triton(out: Path) -> Row:
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    return _pallas("triton")


@case("pallas_mosaic", "JAX Pallas, Mosaic GPU back end")
def pallas_mosaic(out: Path) -> Row:
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    return _pallas("mosaic")


@case("xla_fusion", "JAX, kernels that XLA fuses")
def xla_fusion(out: Path) -> Row:
    os.environ["XDG_CACHE_HOME"] = str(out / "cache")
    return _pallas("fusion")
