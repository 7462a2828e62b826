"""Kernels launched from C++ on a GPU: every way to launch gives complete records and bit-identical results."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc"),
]
CASES = ("runtime", "warm", "threads", "graph", "packed", "beside_torch", "program")


@pytest.fixture(scope="module", name="out")
def _out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reach")


@pytest.mark.parametrize("name", CASES)
def test_records_are_complete_and_results_bit_identical(name: str, out: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.reach", "run", "--out", str(out), f"cpp_{name}"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src:{ROOT}"}
    subprocess.run(command, check=True, cwd=ROOT, env=environment, timeout=120)
    (row,) = json.loads((out / "reach.json").read_text())["rows"]
    if "not_here" in row:
        pytest.skip(row["not_here"])
    assert "problem" not in row, row
    assert row["identical"]
    assert row["complete"]
    assert row["kernels"]
