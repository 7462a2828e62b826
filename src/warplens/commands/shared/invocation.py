"""The command line that starts warplens, for the commands that warplens suggests."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

_STARTED_AS = sys.argv[0]
"""Saved at import, because `warplens run` replaces sys.argv by the program's own."""


def warplens_command() -> str:
    """Return `warplens` if it is on PATH, otherwise the path or interpreter that started this process."""
    if shutil.which("warplens"):
        return "warplens"
    if Path(_STARTED_AS).name == "warplens":
        return os.path.relpath(_STARTED_AS)
    name = Path(sys.executable).name
    found = shutil.which(name)
    return f"{name if found and os.path.abspath(found) == sys.executable else sys.executable} -m warplens"
