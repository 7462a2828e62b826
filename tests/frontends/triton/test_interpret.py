"""Marks under TRITON_INTERPRET=1, in a process of their own because Triton reads the switch when `@jit` runs."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.support.paths import SUPPORT

pytest.importorskip("triton", reason="triton is not installed")


def test_the_interpreter_records_host_time_per_program() -> None:
    script = SUPPORT / "interpreted_kernel.py"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert "cpu" in done.stdout, "the trace must say whose time this is"
