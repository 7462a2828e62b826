"""Kernels of DeepGEMM, compiled by `warplens nvcc` with DeepGEMM's own options, for benchmarks/reach.py.

$DEEP_GEMM names a checkout of DeepGEMM, and $CUTLASS one of CUTLASS. The sources are those that DeepGEMM's JIT writes.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks.lib.reach_jit import DEEP_GEMM
from warplens.frontends.assembled_ptx import ptx_store

_SOURCE = """\
#include <deep_gemm/impls/{header}.cuh>
using namespace deep_gemm;
static void __instantiate_kernel() {{ auto ptr = reinterpret_cast<void*>(&{kernel}); }};
"""
KERNELS = {
    "sm90_bf16_gemm": "sm90_bf16_gemm_impl<cute::UMMA::Major::K, cute::UMMA::Major::K, 0, 4096, 4096, 1, 128, 128, 64, "
    "128, 128, 128, 6, 128, 256, 2, false, 132, GemmType::Normal, false, cutlass::bfloat16_t>",
    "sm90_fp8_gemm_1d2d": "sm90_fp8_gemm_1d2d_impl<cute::UMMA::Major::K, 0, 4096, 4096, 1, 128, 128, 128, 128, 128, "
    "128, 5, 128, 256, 2, false, 132, GemmType::Normal, cutlass::bfloat16_t, epilogue::transform::EpilogueIdentity>",
    "smxx_layout": "transpose_fp32<512, 64, 32>",
    "smxx_clean_logits": "smxx_clean_logits<1, 8192, 4, float>",
}


def deep_gemm_kernels() -> Iterator[tuple[str, str]]:
    checkout, cutlass = os.environ.get("DEEP_GEMM", ""), os.environ.get("CUTLASS", "")
    if not checkout or not cutlass:
        raise RuntimeError("set DEEP_GEMM and CUTLASS to checkouts of these libraries")
    includes = [f"-I{checkout}/deep_gemm/include", f"-I{cutlass}/include"]
    for header, kernel in KERNELS.items():
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_CACHE_HOME"] = folder
            source, cubin = Path(folder) / "kernel.cu", Path(folder) / "kernel.cubin"
            source.write_text(_SOURCE.format(header=header, kernel=kernel))
            words = [*DEEP_GEMM.split(), *includes, "--gpu-architecture=sm_90a"]
            command = [sys.executable, "-m", "warplens", "nvcc", "--auto", str(source), "-cubin", "-o", str(cubin)]
            subprocess.run([*command, *words], check=True)
            yield header, ptx_store.find([cubin.read_bytes()]) or ""
