"""A C++ library that launches kernels through a driver that is not there: compiled once, run in processes of their own,
because what stands in front of a driver stays there."""

from __future__ import annotations

import atexit
import functools
import json
import os
import shutil
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
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    compiled = (
        ("gcc", "fake_libcuda.c", "libcuda.so.1"), ("g++", "launcher.cpp", "launcher.so"),
        ("gcc", "fake_cute_runtime.c", "cute_runtime.so"), ("g++", "program.cpp", "program"),
        ("gcc", "fake_cudart.c", "cudart.so"),
    )  # fmt: skip
    for compiler, source, name in compiled:
        options = [*(["-shared"] if ".so" in name else []), "-fPIC", "-w", "-pthread"]
        subprocess.run([compiler, *options, str(_HERE / source), "-o", str(folder / name), "-ldl"], check=True)
    return folder


def run_scenario(name: str, *arguments: str, module: str = "scenarios", **environment: str) -> dict[str, Any]:
    """What a scenario of scenarios.py, or of another module here, printed as JSON, with what it wrote to stderr."""
    path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH"), f"{ROOT}/src", str(ROOT))))
    known = {**os.environ, "LD_LIBRARY_PATH": str(libraries()), "PYTHONPATH": path, "PYTHONFAULTHANDLER": "1"}
    known |= environment
    command = [sys.executable, "-m", f"{__name__}.{module}", name, str(libraries() / "launcher.so")]
    done = subprocess.run(
        [*command, *arguments], env=known, cwd=ROOT, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout.splitlines()[-1]), "stderr": done.stderr}
