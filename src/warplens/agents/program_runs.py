"""Programs that an agent runs: `warplens run` and `warplens sensitivity` in a process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from warplens.errors import WarplensError

SHOWN = 1500
"""Characters of a program's own output that an answer holds at most: its end, where errors are."""


def run_verb(verb: str, arguments: Sequence[str], folder: Path, timeout: float) -> tuple[int, dict[str, Any], str]:
    """Run a verb of warplens with --json in `folder`; return its exit code, its document and what it said."""
    command = [sys.executable, "-m", "warplens", verb, "--json", *arguments]
    code, output, said = run_program(command, folder, timeout)
    try:
        document = json.loads(output) if output.strip() else {}
    except ValueError:
        document = {}
    if code == 2 or (not document and code):
        raise WarplensError(f"warplens {verb} ended with code {code}: {said[-SHOWN:].strip() or 'it said nothing'}")
    return code, document if isinstance(document, dict) else {"rows": document}, said[-SHOWN:]


def run_program(command: Sequence[str], folder: Path, timeout: float) -> tuple[int, str, str]:
    """Run a program without a shell; return its exit code and what it wrote."""
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired as error:
        said = (error.stderr or b"").decode(errors="replace")[-SHOWN:]
        raise WarplensError(f"the program did not end within {timeout:,.0f} s; it said: {said.strip()}") from None
    except OSError as error:
        raise WarplensError(f"{command[0]} cannot be run: {error.strerror or error}") from None
    return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
