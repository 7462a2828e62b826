"""Kernels launched from C++ on a GPU: every way to launch gives complete records and bit-identical results."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from benchmarks.lib.reach_cases import CASES, run_case

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not shutil.which("nvcc"), reason="needs nvcc"),
]


@pytest.fixture(scope="module", name="out")
def _out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reach")


@pytest.mark.parametrize("name", [name for name in CASES if name.startswith("cpp_")])
def test_records_are_complete_and_results_bit_identical(name: str, out: Path) -> None:
    row = run_case(name, out)
    if "not_here" in row:
        pytest.skip(row["not_here"])
    assert "problem" not in row, row
    assert row["identical"]
    assert row["complete"]
    assert row["kernels"]
