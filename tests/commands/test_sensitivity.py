"""`warplens sensitivity` as a process: the program runs once unless asked, and says what is missing."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import warplens as wl
from tests.support.run_program import interpreted, program, python
from warplens.analyse.measured_slopes import measured_slopes
from warplens.commands import main

pytest.importorskip("triton", reason="triton is not installed")

STEPPED = """
import sys
import numpy as np
from tests.support.fake_device import gpu
from tests.support.stepped_kernel import stepped

gpu.timed = True
source, target = gpu.tensor(np.arange(256, dtype=np.float32)), gpu.tensor(np.zeros(256, np.float32))
for _ in range(int(sys.argv[1])):
    stepped[(2,)](source, target, 3, BLOCK=128, num_warps=2)
    assert (target.numpy() == 2 * source.numpy() + 2).all()
print("launches", len(gpu.fired))
"""
NEEDED = 4 + 2 + 3 * 6
"""Launches for one region in three rounds."""


def sensitivity(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "warplens", "sensitivity", *words, **more)


def test_one_run_of_a_program_that_launches_often_enough(tmp_path: Path) -> None:
    program(tmp_path, STEPPED)
    words = ["--rounds", "3", "--regions", "load,scale it", "-o", "out.warplens", "--json", "prog.py", "60"]
    done = sensitivity(tmp_path, *words)
    assert done.returncode == 0, done.stderr
    assert "launches 60\n" in done.stderr, "the program's launches are those it makes by itself"
    document = json.loads(done.stdout)
    assert {one["region"] for one in document["regions"]} == {"load", "scale it"}
    assert all(one["slope"] == pytest.approx(1.0, abs=0.1) for one in document["regions"])
    trace = wl.load(tmp_path / "out.warplens")
    assert len(measured_slopes(trace)["stepped"].regions) == 2
    again = sensitivity(tmp_path, *words)
    assert (again.returncode, again.stdout) == (1, "")
    assert "already exists; pass --force" in again.stderr
    shown = python(tmp_path, "-m", "warplens", "stats", "out.warplens", "--show", "sensitivity")
    assert "critical" in shown.stdout


def test_too_few_launches_name_the_number_needed_and_repeating_helps(tmp_path: Path) -> None:
    program(tmp_path, STEPPED)
    words = ["--rounds", "3", "--regions", "load"]
    few = sensitivity(tmp_path, *words, "prog.py", "9")
    assert few.returncode == 1
    assert f"of the {NEEDED} launches" in few.stderr
    assert "--repeat 3" in few.stderr
    enough = sensitivity(tmp_path, *words, "--repeat", "5", "prog.py", "9")
    assert enough.returncode == 0, enough.stderr
    assert enough.stdout.count("launches ") == 3, "no more runs than needed"
    assert "stepped: " in enough.stdout
    assert "critical" in enough.stdout


def test_the_programs_own_failure_comes_first(tmp_path: Path) -> None:
    program(tmp_path, STEPPED + "sys.exit(7)\n")
    done = sensitivity(tmp_path, "--rounds", "3", "prog.py", "6")
    assert done.returncode == 7
    assert "ended with code 7" in done.stderr


def test_a_program_without_a_gpu_has_no_time_to_measure(tmp_path: Path) -> None:
    program(
        tmp_path,
        """
        import triton, triton.language as tl
        import warplens.triton as wlt

        @triton.jit
        def counted(N: tl.constexpr):
            with wlt.region("outer"):
                tl.max(tl.arange(0, N), axis=0)

        counted[(2,)](4)
        """,
    )
    done = python(tmp_path, "-m", "warplens", "sensitivity", "prog.py", TRITON_INTERPRET="1")
    assert done.returncode == 1
    assert "no recorded launch can be delayed" in done.stderr
    assert interpreted(tmp_path, "prog.py").returncode == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "no program to run; usage: warplens sensitivity"),
        (["--delays", "many", __file__], "--delays many: expected cycles"),
        (["--delays", "0", __file__], "give cycles, each within"),
        (["--repeat", "0", __file__], "--repeat 0: must be at least 1"),
        (["--rounds", "1", __file__], "must be at least 3"),
        (["--kernels", "(", __file__], "is not a regular expression"),
        (["none.py"], "none.py"),
    ],
)
def test_what_cannot_be_asked(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sensitivity", *words]) == 2
    assert message in capsys.readouterr().err


def test_the_verb_is_listed_and_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "sensitivity" in capsys.readouterr().out
    assert main(["sensitivity", "--help"]) == 0
    assert "0 means" in capsys.readouterr().out
