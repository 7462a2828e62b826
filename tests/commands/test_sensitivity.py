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
from warplens.runner.run_arguments import split_mixed

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
DELAYS = ("--delays", "2000,4000,6000")
"""Long ones: the kernel is short, and its time steps by 32 ns."""
NEEDED = 4 + 2 + 3 * 5
"""Launches for one region in three rounds."""


def sensitivity(folder: Path, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    return python(folder, "-m", "warplens", "sensitivity", *words, **more)


def test_one_run_of_a_program_that_launches_often_enough(tmp_path: Path) -> None:
    program(tmp_path, STEPPED)
    words = ["prog.py", "--rounds=3", "--regions", "load,scale it", "60", "--output", "out.warplens", "--json", *DELAYS]
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
    words = ["--rounds", "3", "--regions", "load", *DELAYS]
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


def test_a_variant_that_is_seldom_launched_does_not_hold_up_the_others(tmp_path: Path) -> None:
    once = "stepped[(1,)](source, target, 3, BLOCK=128, num_warps=2)\n"
    text = STEPPED.replace("for _ in", f"gpu.timed = True\n{once}for _ in").replace("    assert", "    assert True or")
    program(tmp_path, f"from warplens.profiling import delay_session\ndelay_session.PATIENCE = 1\n{text}")
    done = sensitivity(tmp_path, "--rounds", "3", "--regions", "load,scale it", "--json", "prog.py", "120")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["regions"]
    assert {(one["region"], one["slope"] is None) for one in found if "grid 2" in one["variant"]} == {
        ("load", False),
        ("scale it", False),
    }
    assert all("too few" in one["reason"] for one in found if "grid 2" not in one["variant"])


def test_switched_off_the_program_runs_as_it_is(tmp_path: Path) -> None:
    program(tmp_path, "import sys\nprint('done')\nsys.exit(4)")
    done = sensitivity(tmp_path, "prog.py", WARPLENS="0")
    assert (done.returncode, done.stdout) == (4, "done\n")
    assert "profiling is off" in done.stderr


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


@pytest.mark.parametrize(
    ("words", "ours", "program"),
    [
        (["p.py", "--kernels", "a", "-o", "x"], ["--kernels", "a"], ["p.py", "-o", "x"]),
        (["--json", "p.py", "--kernels=a", "4"], ["--json", "--kernels=a"], ["p.py", "4"]),
        (["p.py", "--", "--json", "--"], [], ["p.py", "--json", "--"]),
        (["p.py", "--size", "4", "--json"], ["--json"], ["p.py", "--size", "4"]),
        (["p.py", "--auto", "loads", "x"], ["--auto=loads"], ["p.py", "x"]),
    ],
)
def test_options_may_follow_the_program(words: list[str], ours: list[str], program: list[str]) -> None:
    assert split_mixed(words, ["--kernels", "--auto", "-o"], ["--json"]) == (ours, program)


def test_the_verb_is_listed_and_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    assert "sensitivity" in capsys.readouterr().out
    assert main(["sensitivity", "--help"]) == 0
    assert "0 means" in capsys.readouterr().out


def test_a_program_that_profiles_itself_is_told_so_without_another_verbs_name(tmp_path: Path) -> None:
    """The message comes from the profile, which does not know what started the program."""
    profiled = STEPPED.replace("for _ in", "import warplens as wl\nwith wl.profile():\n  for _ in").replace(
        "\n    ", "\n      "
    )
    program(tmp_path, profiled)
    done = sensitivity(tmp_path, "prog.py", "3")
    assert done.returncode == 1
    assert "the program profiles its kernels itself" in done.stderr
    assert "remove that profile, or run the program by itself" in done.stderr
    assert "warplens run" not in done.stderr
