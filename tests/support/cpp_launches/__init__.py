"""A C++ library that launches kernels through a driver that is not there: compiled once, run in processes of their own,
because what stands in front of a driver stays there."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.paths import ROOT

_HERE = Path(__file__).parent


@functools.cache
def libraries() -> Path:
    """A folder with libcuda.so.1 and launcher.so."""
    folder = Path(tempfile.mkdtemp(prefix="warplens-test-cpp-"))
    compiled = (("gcc", "fake_libcuda.c", "libcuda.so.1"), ("g++", "launcher.cpp", "launcher.so"))
    for compiler, source, name in compiled:
        command = [
            compiler,
            "-shared",
            "-fPIC",
            "-w",
            "-pthread",
            str(_HERE / source),
            "-o",
            str(folder / name),
            "-ldl",
        ]
        subprocess.run(command, check=True)
    return folder


def run_scenario(name: str, *arguments: str, **environment: str) -> dict[str, Any]:
    """What a scenario of scenarios.py printed as JSON, with what it wrote to stderr."""
    known = {**os.environ, "LD_LIBRARY_PATH": str(libraries()), "PYTHONPATH": f"{ROOT}/src:{ROOT}", **environment}
    command = [sys.executable, "-m", "tests.support.cpp_launches.scenarios", name, str(libraries() / "launcher.so")]
    done = subprocess.run(
        [*command, *arguments], env=known, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}
