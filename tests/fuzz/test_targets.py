"""Each fuzz target runs for a few seconds; longer runs are in docs/results/fuzz.md."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.paths import ROOT

CASES = {"captures": 150, "ncu": 300, "ptx": 30, "torch": 60, "traces": 60}


@pytest.mark.parametrize("target", CASES)
def test_only_a_warplens_error_comes_out(target: str) -> None:
    """In a process of its own: a target limits the memory, and a hang ends the process."""
    command = [sys.executable, "-m", "tests.fuzz", target, "--cases", str(CASES[target]), "--seed", "7"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-6000:]
    assert f"{CASES[target]:,} cases, 7:0 to 7:{CASES[target] - 1}, 0 failed" in done.stdout
