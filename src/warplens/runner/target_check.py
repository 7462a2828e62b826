"""Find what the user means to run, and say what is wrong with it before anything runs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from warplens.errors import UsageError, closest, did_you_mean
from warplens.record.capture import MAGIC
from warplens.trace.columns import PARQUET

_INTERPRETERS = ("python", "python3", "python.exe")
_TRACES = (PARQUET, MAGIC)
"""How a trace, which is a Parquet file, and a capture begin."""


def check_script(target: str) -> None:
    """Refuse a script that is not there or is not Python."""
    path = Path(target)
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise UsageError(f"{target}: is a folder without a __main__.py; name the script in it")
        return
    if not path.exists():
        raise UsageError(_missing(target))
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    if start.startswith(b"\x7fELF"):
        raise UsageError(
            f"{target}: is a compiled program, not Python; mark its kernels with warplens.cuh "
            "(warplens info --include-dir)"
        )
    if start.startswith(_TRACES):
        raise UsageError(f"{target}: is a trace, not a program; look at it with `warplens stats {target}`")


def check_module(name: str) -> None:
    """Refuse a module whose package is neither here nor installed; what lies inside it Python looks up itself."""
    top = name.partition(".")[0]
    before = list(sys.path)
    sys.path.insert(0, os.getcwd())
    try:
        found = importlib.util.find_spec(top) if top else None
    finally:
        sys.path[:] = before
    if found is None:
        here = [file.stem for file in Path().glob("*.py")] + [each.parent.name for each in Path().glob("*/__init__.py")]
        hint = did_you_mean(top, here) if here else ""
        raise UsageError(f"-m {name}: no module {top!r} here or among Python's packages{hint}")


def _missing(target: str) -> str:
    path = Path(target)
    if path.name in _INTERPRETERS:
        return f"{target}: leave the interpreter out: warplens run SCRIPT.py ..., or warplens run -m MODULE ..."
    folder = path.parent if path.parent.is_dir() else Path()
    near = [str(file) for file in sorted(folder.glob("*.py"))]
    if folder != Path():
        near += [str(file) for file in sorted(Path().glob("*.py"))]
    if close := closest(target, near) or next((file for file in near if Path(file).stem == path.stem), ""):
        return f"{target}: no such script (did you mean {close!r}?)"
    if os.sep not in target and shutil.which(target):
        return f"{target}: no such script; a command on PATH is run as its module: warplens run -m {target} ..."
    shown = ", ".join(near[:8]) + (", …" if len(near) > 8 else "")
    return f"{target}: no such script; " + (f"Python files here: {shown}" if near else "there are no Python files here")
