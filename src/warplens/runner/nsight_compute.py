"""Run Nsight Compute on the unmarked kernels of a program, and read its reports."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from warplens.analyse.ncu import NcuKernel, parse_ncu
from warplens.errors import UsageError, WarplensError
from warplens.files import check_writable

_INSTALL_HINT = (
    "it comes with the CUDA toolkit (bin/ncu) and as Nsight Compute from developer.nvidia.com/nsight-compute; on a "
    "machine that has it, `ncu --import R.ncu-rep --page raw --csv > R.csv` writes a file that warplens can read here"
)


def find_ncu() -> str:
    """Return the path of ncu, or raise an error that says how to install it."""
    found = shutil.which("ncu")
    if found is None:
        raise WarplensError(f"ncu is not on PATH: {_INSTALL_HINT}")
    return found


def ncu_command(
    program: Sequence[str],
    report: str | os.PathLike[str],
    *,
    kernels: str | None = None,
    launches: int | None = None,
) -> list[str]:
    """Return the command that runs a program under ncu with all sections and sources, without fixing the clock."""
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
    """Run a program under ncu with warplens switched off, to measure the kernels without marks.

    `launches` is the maximum number of launches to measure, over all kernels together.
    """
    target = Path(report).with_suffix(".ncu-rep")
    check_writable(target, force=force)
    command = ncu_command(program, target, kernels=kernels, launches=launches)
    done = subprocess.run(command, env={**os.environ, "WARPLENS": "0"}, check=False)
    if done.returncode or not target.exists():
        raise WarplensError(
            f"ncu exited with code {done.returncode} and wrote {'a' if target.exists() else 'no'} report; on "
            f"ERR_NVGPUCTRPERM, an administrator must allow counters (NVreg_RestrictProfilingToAdminUsers=0)"
        )
    return read_ncu(target)


def read_ncu(path: str | os.PathLike[str]) -> tuple[NcuKernel, ...]:
    """Read the kernels of a .csv file (raw or details page), or of a .ncu-rep report, which needs ncu."""
    source = Path(path)
    if not source.exists():
        raise WarplensError(f"{source}: no such file; expected an Nsight Compute report (.csv or .ncu-rep)")
    if source.suffix == ".csv":
        return parse_ncu(source.read_text(errors="replace"), str(source))
    if source.suffix != ".ncu-rep":
        raise UsageError(f"{source}: unknown format; expected an Nsight Compute report that ends in .csv or .ncu-rep")
    command = [find_ncu(), "--import", str(source), "--page", "raw", "--csv"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WarplensError(f"{source}: ncu cannot read this report: {(done.stderr or done.stdout).strip()[:200]}")
    return parse_ncu(done.stdout, str(source))
