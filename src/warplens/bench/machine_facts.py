"""Facts about the machine to store with results: device, driver, versions, date, command and commit."""

from __future__ import annotations

import datetime
import platform
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from warplens.bench.backend import Backend
from warplens.installed import installed_version
from warplens.version import __version__

_PACKAGES = ("numpy", "torch", "triton")


def machine_facts(backend: Backend) -> dict[str, Any]:
    """Return the facts as JSON values."""
    versions = {"warplens": __version__, "python": platform.python_version()}
    versions |= {name: found for name in _PACKAGES if (found := installed_version(name))}
    return {
        "backend": backend.name,
        **backend.facts(),
        "system": platform.platform(),
        "versions": versions,
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "command": command_line(),
        "commit": commit(),
    }


def command_line() -> str:
    """Return the command line of this process, without the folder of the program."""
    program, *rest = sys.argv or [""]
    path = Path(program)
    name = f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name
    return " ".join([name, *(shlex.quote(part) for part in rest)])


def commit() -> str:
    """Return the commit checked out in this folder, with `+` if files were modified; empty outside a repository."""
    try:
        found = _git("rev-parse", "HEAD")
        return found + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "") if found else ""
    except (OSError, subprocess.SubprocessError):
        return ""


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], capture_output=True, text=True, timeout=10)
    return done.stdout.strip() if done.returncode == 0 else ""
