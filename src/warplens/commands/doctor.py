"""`warplens doctor`: check which tools and libraries are installed, and what each is used for."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path

import click
from rich.markup import escape
from rich.table import Table

from warplens import native
from warplens.commands.shared.console import json_option, print_json, stdout
from warplens.driver.gpu_names import gpu_names
from warplens.driver.libcupti import Cupti, find_cupti
from warplens.errors import WarplensError
from warplens.frontends.registry import FRONT_ENDS, FrontEnd
from warplens.installed import OLDEST, installed_version, is_too_old
from warplens.native.driver_hooks import SWITCH, load_hooks
from warplens.native.program_host import python_library
from warplens.sass.cuda_tools import known_tool
from warplens.version import __version__

_CORE = ("numpy", "pyarrow", "rich", "click", "jinja2")
_EXTRAS = {
    "apache-tvm-ffi": ("CuTe DSL kernels through TVM-FFI", "pip install apache-tvm-ffi"),
    "pandas": ("trace.to_pandas()", "pip install pandas"),
    "matplotlib": ("plots written to files", "pip install 'warplens[viewer]'"),
}
_WIDE = 160
"""Columns of a terminal that has room for the whole table."""
_TOOLKIT = "comes with the CUDA toolkit"
_TOOLS = {
    "nvcc": ("compiling CUDA C++ ahead of time: warplens nvcc", _TOOLKIT),
    "ptxas": ("assembling woven PTX without Triton", _TOOLKIT),
    "nvdisasm": ("verifying regions in machine code: warplens verify", f"{_TOOLKIT} and with Triton"),
    "cuobjdump": ("verifying regions of nvcc programs: warplens verify", f"{_TOOLKIT} and with Triton"),
    "ncu": ("hardware counters: run --ncu", "comes with Nsight Compute"),
    "nsys": ("system-wide timeline: run --nsys", "comes with Nsight Systems"),
}


@dataclass(frozen=True)
class DoctorCheck:
    """One line of the report. `state` is ok, missing (optional) or broken (warplens needs it)."""

    name: str
    state: str
    found: str
    purpose: str
    remedy: str = ""
    woven: str = ""
    """For a front end that is installed: `yes`, or why its kernels cannot be woven here."""


@click.command("doctor")
@json_option
def command(as_json: bool) -> int:
    """Check the Python packages, compilers, GPU and environment that warplens can use.

    Exits with code 1 if something that warplens needs is missing.
    """
    checks = [
        DoctorCheck("python", "ok", platform.python_version(), "everything"),
        *map(_core, _CORE),
        _decoder(),
        _driver_hooks(),
        _compiled_programs(),
        _gpu(),
        _cupti(),
        *map(_front_end, FRONT_ENDS),
        _amd(),
        *(_part(name, installed_version(name), *known) for name, known in _EXTRAS.items()),
        *(_part(name, known_tool(name) or "", *known, absent="not on PATH") for name, known in _TOOLS.items()),
        _switch(),
    ]
    broken = [check for check in checks if check.state == "broken"]
    if as_json:
        print_json({"warplens": __version__, "ok": not broken, "checks": [asdict(check) for check in checks]})
    else:
        console = stdout()
        console.print(_table(checks, narrow=console.is_terminal and console.width < _WIDE))
        verdict = f"missing: {', '.join(check.name for check in broken)}" if broken else "warplens works here"
        console.print(f"[bold]{verdict}[/]; items marked -- are optional")
    return 1 if broken else 0


def _table(checks: list[DoctorCheck], narrow: bool) -> Table:
    """Build the table; remedies are never truncated, so that they can be pasted."""
    table = Table(header_style="bold", pad_edge=False, box=None, show_header=not narrow)
    columns: dict[str, Callable[[DoctorCheck], str]] = {
        "what": lambda one: one.name,
        "found": lambda one: one.found,
        "can be woven": lambda one: one.woven,
        "used for": lambda one: one.purpose,
        "how to get it": lambda one: one.remedy,
    }
    if narrow:
        columns = {"what": columns["what"], "found": _in_lines}
    columns = {name: text for name, text in columns.items() if any(map(text, checks))}
    for name in ("", *columns):
        table.add_column(name, no_wrap=not narrow, overflow="fold")
    marks = {"ok": "[green]ok[/]", "missing": "[yellow]--[/]", "broken": "[red]!![/]"}
    for check in checks:
        table.add_row(marks[check.state], *(escape(text(check)) for text in columns.values()))
    return table


def _in_lines(check: DoctorCheck) -> str:
    """For a narrow terminal: what was found or, of what is missing, what it is for and how to get it."""
    if check.state == "ok":
        return check.found if check.woven in ("", "yes") else f"{check.found}\nnot woven: {check.woven}"
    return "\n".join(filter(None, (f"{check.found}; for {check.purpose}", check.remedy)))


def _part(
    name: str, found: str, purpose: str, remedy: str, *, absent: str = "not installed", state: str = "missing"
) -> DoctorCheck:
    """The line of something that is `found`, or else in `state`."""
    return DoctorCheck(name, "ok", found, purpose) if found else DoctorCheck(name, state, absent, purpose, remedy)


def _core(name: str) -> DoctorCheck:
    return _part(name, installed_version(name), "everything", f"pip install {name}", state="broken")


def _decoder() -> DoctorCheck:
    reason = native.why_not()
    purpose = "fast decoding" if reason is None else "fast decoding; numpy is used instead"
    return _compiled("fast decoder", reason, purpose, "install gcc or clang")


def _compiled(name: str, reason: str | None, purpose: str, remedy: str) -> DoctorCheck:
    """The line of C code, which `reason` keeps from being used."""
    return _part(name, "" if reason else "compiled", purpose, remedy, absent=reason or "")


def _driver_hooks() -> DoctorCheck:
    _, reason = load_hooks()
    remedy = f"unset {SWITCH}" if SWITCH in (reason or "") else "install gcc or clang"
    return _compiled("driver hooks", reason, "recording kernels launched from C++", remedy)


def _compiled_programs() -> DoctorCheck:
    purpose = "recording compiled programs: run --auto ./program"
    try:
        return DoctorCheck("libpython", "ok", str(python_library()), purpose)
    except WarplensError:
        return DoctorCheck("libpython", "missing", "not there", purpose, "use a Python built with --enable-shared")


def _gpu() -> DoctorCheck:
    names = gpu_names()
    if names:
        return DoctorCheck("gpu", "ok", f"{len(names)} × {names[0]}", "running kernels")
    found = "no NVIDIA driver" if names is None else "NVIDIA driver, but no GPU"
    return DoctorCheck("gpu", "missing", found, "running kernels; the demo uses a simulator")


def _cupti() -> DoctorCheck:
    purpose, remedy = "stall reasons of each region: run --stalls", "pip install nvidia-cuda-cupti"
    path = find_cupti()
    if path is None:
        return DoctorCheck("libcupti", "missing", "not found", purpose, remedy)
    try:
        return DoctorCheck("libcupti", "ok", f"{path} (API {Cupti(path).version})", purpose)
    except WarplensError as error:
        return DoctorCheck("libcupti", "missing", str(error), purpose, remedy)


def _front_end(one: FrontEnd) -> DoctorCheck:
    found = installed_version(one.package) or (_any_cupy() if one.package == "cupy" else "")
    if not found:
        return DoctorCheck(one.package, "missing", "not installed", one.kernels, one.install)
    reason, remedy = "", ""
    if is_too_old(one.package, found):
        oldest = OLDEST[one.package]
        reason, remedy = f"no: it is older than {oldest}", f"pip install -U '{one.package}>={oldest}'"
    elif one.from_cpp and (hooks := _driver_hooks()).state != "ok":
        reason, remedy = f"no: {hooks.found}", hooks.remedy
    elif one.tool and not known_tool(one.tool):
        reason, remedy = f"no: {one.tool} was not found", "install the CUDA toolkit"
    return DoctorCheck(one.package, "missing" if reason else "ok", found, one.kernels, remedy, reason or "yes")


def _amd() -> DoctorCheck:
    """The line of Triton's back end for AMD's GPUs, whose files are looked for: importing Triton takes a second."""
    spec, purpose = find_spec("triton"), "compiling marks in Triton kernels for AMD's GPUs"
    folders = spec.submodule_search_locations if spec else None
    if not any((Path(folder) / "backends" / "amd" / "compiler.py").exists() for folder in folders or ()):
        return DoctorCheck("triton (AMD)", "missing", "not installed", purpose, "pip install 'triton>=3.6'")
    reason = "compiled only: it has not run on hardware, and launches are not recorded"
    return DoctorCheck("triton (AMD)", "ok", "back end installed", purpose, woven=reason)


def _switch() -> DoctorCheck:
    found = "" if os.environ.get("WARPLENS") == "0" else "profiling is on"
    absent = "profiling is off (WARPLENS=0)"
    return _part("environment", found, "WARPLENS=0 turns profiling off", "unset WARPLENS", absent=absent)


def _any_cupy() -> str:
    names = (d.metadata["Name"] or "" for d in importlib.metadata.distributions())
    return next((installed_version(name) for name in names if name.startswith("cupy-cuda")), "")
