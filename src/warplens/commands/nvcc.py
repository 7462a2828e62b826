"""`warplens nvcc`: compile CUDA C++ with nvcc and weave the marks in, which costs less than direct recording."""

from __future__ import annotations

import os
import shutil

import click

from warplens.frontends.assembled_ptx.ptx_store import KEEPS_PTX
from warplens.frontends.nvcc.dryrun import find_nvcc
from warplens.frontends.nvcc.step_runner import NvccCall
from warplens.weave.weaving import Weaving


@click.command(
    "nvcc",
    context_settings={
        "ignore_unknown_options": True,
        "allow_interspersed_args": False,
        "help_option_names": ["--help"],
    },
)
@click.option("--nvcc", "named", metavar="PATH", help="nvcc executable to use.  [default: $NVCC, then the one on PATH]")
@click.option(
    "--any-block", is_flag=True, help="Support blocks whose size is not a multiple of 32 threads, at a higher cost."
)
@click.option(
    "--auto",
    is_flag=True,
    envvar=KEEPS_PTX,
    help="Keep the PTX of the kernels, so that `warplens run --auto` can mark kernels that are loaded as machine code. "
    "On by default inside `warplens run --auto`.",
)
@click.option("--whole-warps", is_flag=True, help="Assume that blockDim.x is always a multiple of 32.")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(named: str | None, any_block: bool, auto: bool, whole_warps: bool, arguments: tuple[str, ...]) -> int:
    """Compile with nvcc and weave the marks of warplens.cuh into the PTX.

    ARGUMENTS are passed to nvcc; the include folder of warplens.cuh is added. The program records the same data as
    with plain nvcc, at a lower cost.

    Woven kernels share stores among the lanes of a warp, so the number of threads per block must be a multiple of 32.
    Each kernel checks this when it runs and refuses other blocks, unless it was compiled with --any-block.

    \b
    Examples:
        warplens nvcc -O3 -std=c++17 -arch=sm_90a gemm.cu -o gemm
        make NVCC="warplens nvcc"
        cmake -DCMAKE_CUDA_COMPILER_LAUNCHER="warplens;nvcc" ...
        PYTORCH_NVCC="warplens nvcc" python train.py
        DG_JIT_NVCC_COMPILER=$(which warplens-nvcc) warplens run --auto deep_gemm.py
    """
    if any_block and whole_warps:
        raise click.UsageError("--any-block and --whole-warps cannot be combined")
    if arguments and os.path.basename(arguments[0]) == "nvcc" and shutil.which(arguments[0]):
        named, arguments = named or arguments[0], arguments[1:]
    if os.environ.get("WARPLENS") == "0" and not any(word.startswith("-DWARPLENS") for word in arguments):
        arguments = (*arguments, "-DWARPLENS=0")
    how = Weaving(store="auto") if any_block else Weaving(store="spread", aligned=whole_warps)
    return NvccCall(find_nvcc(named), arguments, how, keeps_ptx=auto).run()
