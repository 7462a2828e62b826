"""Examples on a machine without a GPU: Triton's run in its interpreter, the others say in one line what they need."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.paths import EXAMPLES, ROOT, SUPPORT

WITHOUT_GPU = SUPPORT / "no_gpu"
NEEDS = "Needs a GPU"
INTERPRETED = "[TRITON_INTERPRET=1]"
BENCHMARKS = {"attention/bench.py", "attention/broken/bench.py"}
"""Files for `warplens bench` and `diagnose`, which say themselves that there is no GPU."""


def is_program(path: Path) -> bool:
    text = path.read_text()
    return '__name__ == "__main__"' in text or "SystemExit" in text


PROGRAMS = [str(path.relative_to(EXAMPLES)) for path in sorted(EXAMPLES.rglob("*.py")) if is_program(path)]


def description(name: str) -> str:
    return ast.get_docstring(ast.parse((EXAMPLES / name).read_text())) or ""


def run(name: str, *paths: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    modules = os.pathsep.join([*map(str, paths), str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [sys.executable, EXAMPLES / name],
        env={**os.environ, "PYTHONPATH": modules, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("name", [*PROGRAMS, *sorted(BENCHMARKS)])
def test_an_example_says_whether_it_needs_a_gpu(name: str) -> None:
    assert (NEEDS in description(name)) != (INTERPRETED in description(name))


@pytest.mark.parametrize("name", PROGRAMS)
def test_without_a_gpu_an_example_says_so_in_one_line(name: str) -> None:
    if "cutlass" in (EXAMPLES / name).read_text():
        pytest.importorskip("cutlass", reason="nvidia-cutlass-dsl is not installed")
    done = run(name, WITHOUT_GPU, TRITON_INTERPRET="0")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1, done.stderr
    assert ("needs a GPU" if NEEDS in description(name) else "TRITON_INTERPRET=1") in done.stderr


@pytest.mark.skipif(find_spec("torch") is None, reason="torch is not installed")
@pytest.mark.parametrize("name", [name for name in PROGRAMS if INTERPRETED in description(name)])
def test_a_triton_example_runs_in_the_interpreter(name: str) -> None:
    done = run(name, TRITON_INTERPRET="1")
    assert done.returncode == 0, done.stderr
    assert "times," in done.stdout


def test_the_examples_are_found() -> None:
    assert len(PROGRAMS) >= 14
    assert sum(INTERPRETED in description(name) for name in PROGRAMS) == 2
