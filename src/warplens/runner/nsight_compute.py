"""Nsight Compute: run it on the unmarked kernels of a program, and read its reports."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from warplens.analyse.ncu import NcuKernel, parse_ncu
from warplens.errors import UsageError, WarplensError
from warplens.files import check_writable

_GET_IT = (
    "it comes with the CUDA toolkit (bin/ncu) and as Nsight Compute from developer.nvidia.com/nsight-compute; "
    "elsewhere, `ncu --import R.ncu-rep --page raw --csv > R.csv` makes a file that warplens reads without it"
)


def find_ncu() -> str:
    """The path of ncu, or an error that says how to get it."""
    found = shutil.which("ncu")
    if found is None:
        raise WarplensError(f"ncu is not on PATH: {_GET_IT}")
    return found


def ncu_command(
    program: Sequence[str],
    report: str | os.PathLike[str],
    *,
    kernels: str | None = None,
    launches: int | None = None,
) -> list[str]:
    """How to run a program under ncu: full sections, sources, and the clock left as it is, as in a real run."""
    chosen = ["--kernel-name", f"regex:{kernels}"] if kernels else []
    chosen += ["--launch-count", str(launches)] if launches else []
    options = ["--clock-control", "none", "--set", "full", "--import-source", "yes", "--target-processes", "all"]
    return [find_ncu(), *options, *chosen, "--force-overwrite", "--export", os.fspath(report), *program]


def run_ncu(
    program: Sequence[str],
    report: str | os.PathLike[str],
    *,
    kernels: str | None = None,
    launches: int | None = None,
    force: bool = False,
) -> tuple[NcuKernel, ...]:
    """Run a program under ncu with warplens switched off, so that the unmarked kernels are what it measures.

    `launches` bounds how many are measured, of all kernels together.
    """
    target = Path(report).with_suffix(".ncu-rep")
    check_writable(target, force=force)
    command = ncu_command(program, target, kernels=kernels, launches=launches)
    done = subprocess.run(command, env={**os.environ, "WARPLENS": "0"}, check=False)
    if done.returncode or not target.exists():
        raise WarplensError(
            f"ncu ended with code {done.returncode} and {'a' if target.exists() else 'no'} report; if it says "
            f"ERR_NVGPUCTRPERM, the administrator must allow counters (NVreg_RestrictProfilingToAdminUsers=0)"
        )
    return read_ncu(target)


def read_ncu(path: str | os.PathLike[str]) -> tuple[NcuKernel, ...]:
    """The kernels of a .csv file (raw or details page) or of a .ncu-rep report, which needs ncu."""
    source = Path(path)
    if not source.exists():
        raise WarplensError(f"{source}: no such file; expected a .csv or .ncu-rep of Nsight Compute")
    if source.suffix == ".csv":
        return parse_ncu(source.read_text(errors="replace"), str(source))
    if source.suffix != ".ncu-rep":
        raise UsageError(f"{source}: expected a report of Nsight Compute that ends in .csv or .ncu-rep")
    command = [find_ncu(), "--import", str(source), "--page", "raw", "--csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WarplensError(f"{source}: ncu cannot read it: {(done.stderr or done.stdout).strip()[:200]}")
    return parse_ncu(done.stdout, str(source))
