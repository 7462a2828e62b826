"""How to call warplens again from where the user stands."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_CALLED = sys.argv[0]
"""As it was at the start: a program that warplens runs has its own."""


def warplens_command() -> str:
    """`warplens` where the shell finds it, else the path or the interpreter it was called by."""
    if shutil.which("warplens"):
        return "warplens"
    if Path(_CALLED).name == "warplens":
        return os.path.relpath(_CALLED)
    name = Path(sys.executable).name
    found = shutil.which(name)
    return f"{name if found and os.path.abspath(found) == sys.executable else sys.executable} -m warplens"
