"""Check the script or module given to `warplens run`, and suggest a correction before anything runs."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from pathlib import Path

from warplens.errors import UsageError, closest, did_you_mean
from warplens.record.capture import MAGIC
from warplens.trace.checksums import PARQUET

_INTERPRETERS = ("python", "python3", "python.exe")
_TRACE_MAGICS = (PARQUET, MAGIC)
"""The first bytes of a trace (a Parquet file) and of a capture."""


def check_script(target: str, *, marks_given: bool = False) -> None:
    """Raise an error if the script does not exist, or is neither a Python program nor, with automatic marks, a compiled
    one that can be run."""
    path = Path(target)
    if path.is_dir():
        if not (path / "__main__.py").is_file():
            raise UsageError(f"{target}: is a folder without a __main__.py; give the script in it")
        return
    if not path.exists():
        raise UsageError(_missing(target))
    with path.open("rb") as file:
        start = file.read(len(MAGIC))
    if start.startswith(b"\x7fELF") and not (marks_given and os.access(target, os.X_OK)):
        raise UsageError(
            f"{target}: is a compiled program, not a Python script; add --auto, or mark its kernels with warplens.cuh "
            "(warplens info --include-dir)"
        )
    if start.startswith(_TRACE_MAGICS):
        raise UsageError(f"{target}: is a trace, not a program; show it with `warplens stats {target}`")


def check_module(name: str) -> None:
    """Raise an error if the module's top-level package is neither in this folder nor installed."""
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
        raise UsageError(f"-m {name}: no module {top!r} in this folder or installed{hint}")


def _missing(target: str) -> str:
    path = Path(target)
    if path.name in _INTERPRETERS:
        return f"{target}: omit the interpreter: warplens run SCRIPT.py ..., or warplens run -m MODULE ..."
    folder = path.parent if path.parent.is_dir() else Path()
    near = [str(file) for file in sorted(folder.glob("*.py"))]
    if folder != Path():
        near += [str(file) for file in sorted(Path().glob("*.py"))]
    if close := closest(target, near) or next((file for file in near if Path(file).stem == path.stem), ""):
        return f"{target}: no such script (did you mean {close!r}?)"
    if os.sep not in target and shutil.which(target):
        return f"{target}: no such script; run the module of this command instead: warplens run -m {target} ..."
    shown = ", ".join(near[:8]) + (", …" if len(near) > 8 else "")
    return f"{target}: no such script; " + (
        f"Python files in this folder: {shown}" if near else "there are no Python files in this folder"
    )
