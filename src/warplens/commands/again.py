"""How to call warplens again from where the user stands."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_CALLED = sys.argv[0]
"""As it was at the start: a program that warplens runs has its own."""


def program() -> str:
    """`warplens`, or the path or module it was called by."""
    called = Path(_CALLED)
    if shutil.which("warplens") or called.name != "warplens":
        return "warplens" if shutil.which("warplens") else f"{Path(sys.executable).name} -m warplens"
    return os.path.relpath(called)
