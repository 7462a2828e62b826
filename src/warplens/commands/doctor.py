"""`warplens doctor`: what this machine has, what is missing, and what each thing is for."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
from dataclasses import asdict, dataclass

import click
from rich.markup import escape

from warplens import __version__, native
from warplens.commands.common import json_option, print_json, stdout
from warplens.driver.libcuda import gpu_names
from warplens.view.adaptive_table import AdaptiveTable

_CORE = ("numpy", "pyarrow", "rich", "click", "jinja2")
_EXTRAS = {
    "triton": ("Triton and Gluon kernels", "pip install 'warplens[triton]'"),
    "torch": ("profiling inside PyTorch programs", "pip install torch"),
    "cuda-core": ("CUDA C++ through NVRTC", "pip install 'warplens[cuda]'"),
    "cuda-bindings": ("CUDA C++ through NVRTC", "pip install 'warplens[cuda]'"),
    "cupy": ("CuPy RawKernel and RawModule", "pip install cupy-cuda13x"),
    "numba-cuda": ("numba's CUDA kernels", "pip install numba-cuda"),
    "nvidia-cutlass-dsl": ("CuTe DSL kernels", "pip install 'warplens[cute]'"),
    "pandas": ("trace.to_pandas()", "pip install pandas"),
    "matplotlib": ("plots in files", "pip install 'warplens[viewer]'"),
}
_TOOLKIT = "comes with the CUDA toolkit"
_TOOLS = {
    "nvcc": ("CUDA C++ compiled ahead of time: warplens nvcc", _TOOLKIT),
    "ptxas": ("assembling woven PTX without Triton", _TOOLKIT),
    "nvdisasm": ("checking regions in SASS", _TOOLKIT),
    "ncu": ("hardware counters: run --ncu", "comes with Nsight Compute"),
    "nsys": ("the whole system: run --nsys", "comes with Nsight Systems"),
}


@dataclass(frozen=True)
class Check:
    """One line of the report. `state` is ok, missing (optional) or broken (warplens itself suffers)."""

    name: str
    state: str
    found: str
    purpose: str
    remedy: str = ""


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Check the Python packages, compilers, GPU and environment that warplens can use."""
    checks = [*_python(), _decoder(), _gpu(), *_extras(), *_tools(), _switch()]
    broken = [check for check in checks if check.state == "broken"]
    if as_json:
        print_json({"warplens": __version__, "ok": not broken, "checks": [asdict(check) for check in checks]})
    else:
        console = stdout()
        console.print(_table(checks))
        verdict = f"{len(broken)} broken" if broken else "warplens works here"
        console.print(f"[bold]{verdict}[/]; what is missing is optional and named with its remedy")
    return 1 if broken else 0


def _table(checks: list[Check]) -> AdaptiveTable:
    """Remedies stay whole, to be pasted."""
    table = AdaptiveTable(spare=("for", "found"))
    for name in ("", "what", "found", "for", "to get it"):
        table.add_column(name, no_wrap=True)
    marks = {"ok": "[green]ok[/]", "missing": "[yellow]--[/]", "broken": "[red]!![/]"}
    for check in checks:
        table.add_row(
            marks[check.state], *(escape(text) for text in (check.name, check.found, check.purpose, check.remedy))
        )
    return table


def _python() -> list[Check]:
    checks = [Check("python", "ok", platform.python_version(), "everything")]
    for name in _CORE:
        found = _version(name)
        remedy = "" if found else f"pip install {name}"
        checks.append(Check(name, "ok" if found else "broken", found or "not installed", "everything", remedy))
    return checks


def _decoder() -> Check:
    reason = native.why_not()
    if reason is None:
        return Check("fast decoder", "ok", "compiled", "decoding at memory speed")
    return Check("fast decoder", "missing", reason, "decoding; numpy serves instead, slower", "install gcc or clang")


def _gpu() -> Check:
    names = gpu_names()
    if not names:
        found = "no NVIDIA driver" if names is None else "driver without a GPU"
        return Check("gpu", "missing", found, "running kernels; the demo simulates one", "")
    return Check("gpu", "ok", f"{len(names)} × {names[0]}", "running kernels")


def _extras() -> list[Check]:
    checks = []
    for name, (purpose, remedy) in _EXTRAS.items():
        found = _version(name) or (_any_cupy() if name == "cupy" else "")
        checks.append(
            Check(name, "ok" if found else "missing", found or "not installed", purpose, "" if found else remedy)
        )
    return checks


def _tools() -> list[Check]:
    checks = []
    for name, (purpose, remedy) in _TOOLS.items():
        found = shutil.which(name)
        state = "ok" if found else "missing"
        checks.append(Check(name, state, found or "not on PATH", purpose, "" if found else remedy))
    return checks


def _switch() -> Check:
    off = os.environ.get("WARPLENS") == "0"
    found = "WARPLENS=0: profiling is off" if off else "profiling is on"
    return Check("environment", "missing" if off else "ok", found, "the switch", "unset WARPLENS" if off else "")


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _any_cupy() -> str:
    names = (d.metadata["Name"] or "" for d in importlib.metadata.distributions())
    return next((_version(name) for name in names if name.startswith("cupy-cuda")), "")
