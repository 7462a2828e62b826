"""Run Nsight Compute on the unmarked kernels of a program, and read its reports."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from warplens.analyse.ncu import NcuKernel, parse_ncu
from warplens.analyse.ncu_source import SourcePage, is_source_page, parse_source_pages
from warplens.errors import UsageError, WarplensError

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
    sections: Sequence[str] = (),
) -> list[str]:
    """Return the command that runs a program under ncu, without fixing the clock; by default with all sections."""
    chosen = ["--kernel-name", f"regex:{kernels}"] if kernels else []
    chosen += ["--launch-count", str(launches)] if launches else []
    wanted = [word for name in sections for word in ("--section", name)] or ["--set", "full"]
    options = ["--clock-control", "none", *wanted, "--import-source", "yes", "--target-processes", "all"]
    return [find_ncu(), *options, *chosen, "--force-overwrite", "--export", os.fspath(report), *program]


def run_ncu(
    program: Sequence[str], report: Path, *, kernels: str | None, launches: int | None
) -> tuple[NcuKernel, ...]:
    """Run a program under ncu with warplens switched off, to measure the kernels without marks.

    `launches` is the maximum number of launches to measure, over all kernels together.
    """
    _run(ncu_command(program, report, kernels=kernels, launches=launches), report, {**os.environ, "WARPLENS": "0"})
    return read_ncu(report)


def run_ncu_marked(program: Sequence[str], report: Path, *, kernels: str, launches: int) -> list[SourcePage]:
    """Run a program that records by itself under ncu, and return the source pages of its kernels.

    Only samples and counters per instruction are collected, which takes a few passes.
    """
    command = ncu_command(program, report, kernels=kernels, launches=launches, sections=("SourceCounters",))
    _run(command, report, os.environ)
    return read_source_pages(report)


def _run(command: Sequence[str], report: Path, environment: Mapping[str, str]) -> None:
    done = subprocess.run(command, env=environment, check=False)
    if done.returncode or not report.exists():
        raise WarplensError(
            f"ncu exited with code {done.returncode} and wrote {'a' if report.exists() else 'no'} report; on "
            f"ERR_NVGPUCTRPERM, an administrator must allow counters (NVreg_RestrictProfilingToAdminUsers=0)"
        )


def read_source_pages(path: str | os.PathLike[str]) -> list[SourcePage]:
    """Read the source pages of a .csv file or of a .ncu-rep report, which needs ncu: by instruction and by line."""
    source = _checked(path)
    if source.suffix == ".csv":
        return parse_source_pages(source.read_text(errors="replace"), str(source))
    pages = parse_source_pages(_page(source, "source", "--print-source", "sass"), str(source))
    try:
        pages += parse_source_pages(_page(source, "source", "--print-source", "cuda,sass"), str(source))
    except WarplensError:
        return pages  # a report without sources has no page by line
    return pages


def find_source_pages(path: str | os.PathLike[str]) -> list[SourcePage] | None:
    """The source pages of a report, or of a .csv file that is such a page; None if it has none."""
    source = Path(path)
    if source.suffix == ".csv":
        is_page = source.is_file() and is_source_page(source.read_text(errors="replace"))
        return read_source_pages(source) if is_page else None
    try:
        return read_source_pages(source)
    except WarplensError:
        return None


def read_ncu(path: str | os.PathLike[str]) -> tuple[NcuKernel, ...]:
    """Read the kernels of a .csv file (raw or details page), or of a .ncu-rep report, which needs ncu."""
    source = _checked(path)
    return parse_ncu(
        source.read_text(errors="replace") if source.suffix == ".csv" else _page(source, "raw"), str(source)
    )


def _checked(path: str | os.PathLike[str]) -> Path:
    """The path of a report that is there and has a known format."""
    source = Path(path)
    if not source.exists():
        raise WarplensError(f"{source}: no such file; expected an Nsight Compute report (.csv or .ncu-rep)")
    if source.suffix not in (".csv", ".ncu-rep"):
        raise UsageError(f"{source}: unknown format; expected an Nsight Compute report that ends in .csv or .ncu-rep")
    return source


def _page(report: Path, page: str, *options: str) -> str:
    command = [find_ncu(), "--import", str(report), "--page", page, "--csv", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WarplensError(f"{report}: ncu cannot read this report: {(done.stderr or done.stdout).strip()[:200]}")
    return done.stdout
