"""The host's clock: one for all processes of a host, and what vouches for its Unix time."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.run_program import environment
from warplens.session import host_clock
from warplens.session.host_clock import now_ns, sample_wall


def test_processes_of_a_host_share_the_clock_and_its_key(tmp_path: Path) -> None:
    text = "from warplens.session.host_clock import *; print(now_ns(), host_clock().key, sep='|')"
    before = now_ns()
    command = [sys.executable, "-c", text]
    said = subprocess.run(command, env=environment(tmp_path), capture_output=True, text=True, check=True).stdout
    then, key = said.strip().split("|")
    assert before < int(then) < now_ns()
    assert key == host_clock.host_clock().key != ""


def test_the_unix_time_is_read_between_two_readings() -> None:
    sample = sample_wall()
    assert 0 <= sample.after_ns - sample.before_ns < 10**9
    assert abs(sample.clock_ns - time.time_ns()) < 10 * 10**9


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ("A,host,3,1.0,-0.000002,0.1,0.1,1.0,0.1,0.1,0.000400,0.000150,64.0,Normal", ("chrony", 352_001)),
        ("7F,,0,0.0,0.0,0.0,0.0,0.0,0.0,0.0,1.0,1.0,0.0,Not synchronised", ("adjtimex", 5_000)),
        ("506 Cannot talk to daemon", ("adjtimex", 5_000)),
    ],
)
def test_daemons_vouch_for_the_unix_time(
    said: str, found: tuple[str, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "chronyc"
    tool.write_text(f"#!/bin/sh\necho '{said}'\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(host_clock, "_kernel", lambda: 5_000)
    clock = host_clock.host_clock()
    assert (clock.source, clock.error_ns) == found


def test_a_kernel_that_is_not_synchronised_vouches_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Library:
        status, result = 0x40, 5

        def adjtimex(self, pointer: object) -> int:
            state = pointer._obj  # type: ignore[attr-defined]
            state.maxerror, state.status = 1234, self.status
            return self.result

    library = Library()
    monkeypatch.setattr(host_clock.ctypes, "CDLL", lambda name: library)
    assert host_clock._kernel() is None
    library.status, library.result = 0x2001, 0
    assert host_clock._kernel() == 1_234_000
    library.result = -1
    assert host_clock._kernel() is None
