"""Registers and spills of marked Triton kernels for AMD's GPUs, as LLVM assembles them. Nothing is run.

    PYTHONPATH=src python -m benchmarks.amd_compile

Each kernel is compiled plain and woven for each GPU. Prints the table in docs/results/reach.md. Needs triton.
"""

from __future__ import annotations

import os
import platform
import tempfile

import triton

from tests.support.amd_kernels import CLOCKS, KERNELS, TARGETS
from warplens.frontends.triton.amd_compiler import code_resources, compile_for_amd

_HEAD = ("GPU", "kernel", "marks", "clock reads", "VGPRs", "SGPRs", "VGPRs spilled", "SGPRs spilled", "remarks")


def main() -> None:
    os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp(prefix="amd_compile")
    print(f"Triton {triton.__version__}, Python {platform.python_version()}; plain → woven\n")
    print("|", " | ".join(_HEAD), "|\n|" + "---|" * len(_HEAD))
    for arch, target in TARGETS.items():
        for name, kernel in KERNELS.items():
            plain = code_resources(triton.compile(kernel.source(), target=target, options=kernel.options).asm["amdgcn"])
            made = compile_for_amd(kernel.source(), target, options=kernel.options)
            woven = made.metadata.warplens
            columns = ("registers", "scalar_registers", "spills", "scalar_spills")
            counts = (f"{plain[column]} → {woven['resources'][column]}" for column in columns)
            reads = made.asm["amdgcn"].count(CLOCKS[arch])
            marks = sum(woven["entries"].values())
            remarks = "; ".join(made.metadata.warplens_remarks["notes"])
            print("|", " | ".join([arch, name.replace("_", " "), str(marks), str(reads), *counts, remarks]), "|")


if __name__ == "__main__":
    main()
