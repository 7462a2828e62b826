"""Regenerate nvcc12_kernels.ptx: `python tests/golden/ptx/make_nvcc12.py` with nvcc 12 on the path and triton."""

from __future__ import annotations

from make import compile_nvcc

compile_nvcc("nvcc12_kernels", "kernels.cu", "sm_80", "-DSMALL")
