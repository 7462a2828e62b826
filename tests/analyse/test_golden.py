"""Real captures of deliberately good and bad kernels (examples/findings): the right finding must come first."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import warplens as wl
from warplens.analyse.findings import findings

ROOT = Path(__file__).resolve().parent.parent.parent
GOLDEN = ROOT / "tests" / "golden" / "findings"
sys.path.insert(0, str(ROOT / "examples" / "findings"))

from expected import CASES, problem_of  # noqa: E402


@pytest.mark.parametrize("name", CASES)
def test_the_finding_it_was_made_for(name: str) -> None:
    path = GOLDEN / f"{name.replace(' ', '_')}.warplens"
    if not path.exists():
        pytest.skip(f"no golden capture {path.name}: made on a GPU by examples/findings/run.py --out {GOLDEN.name}")
    assert problem_of(CASES[name], findings(wl.load(path))) == ""
