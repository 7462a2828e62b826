"""Programs that tests run as processes, plain or under `warplens run`."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.paths import ROOT


def environment(folder: Path, **more: str) -> dict[str, str]:
    paths = [str(ROOT), str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    given = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "TRITON_CACHE_DIR": str(folder / "cache"), **more}
    return {name: value for name, value in given.items() if name not in ("WARPLENS", "RANK", "WORLD_SIZE")} | more


def program(folder: Path, text: str, name: str = "prog.py") -> Path:
    path = folder / name
    path.write_text(textwrap.dedent(text))
    return path


def python(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    env = environment(folder, **more)
    return subprocess.run([sys.executable, *words], cwd=folder, env=env, capture_output=True, text=True, check=False)


def run(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "warplens", "run", *words, **more)


def interpreted(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return run(folder, *words, TRITON_INTERPRET="1")
