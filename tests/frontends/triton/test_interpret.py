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


def test_the_choice_of_launches_holds_in_the_interpreter() -> None:
    program = """
import triton, triton.language as tl
import warplens as wl, warplens.triton as wlt

@triton.jit
def kernel(N: tl.constexpr):
    with wlt.region("work"):
        wlt.value("n", N)

def recorded(**options):
    with wl.profile(**options) as profile:
        for number in range(7):
            for constant in (1, 2):
                kernel[(1,)](constant)
    values = profile.trace.select(kind="value").spans["value"].to_pylist()
    return len(profile.trace.meta.launches), values.count(1.0), profile.seen

print(recorded(), recorded(launches=2), recorded(launches=2, skip="cold"), recorded(skip=1, every=3))
"""
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = subprocess.run(
        [sys.executable, "-"], input=program, capture_output=True, text=True, env=environment, check=False
    )
    seen = {"kernel": 14}
    assert done.stdout.strip() == f"{(14, 7, seen)} {(4, 2, seen)} {(4, 2, seen)} {(4, 2, seen)}", done.stderr[-2000:]
