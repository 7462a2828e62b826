"""`warplens run --auto ./program`: a compiled program with Python inside. The program and its launches are real, its
driver is a C library, and its kernels run in the interpreter."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import warplens as wl
from tests.support.cpp_launches import libraries
from tests.support.paths import ROOT, SUPPORT
from tests.support.vector_add_launch import PTX
from warplens.errors import WarplensError
from warplens.native import program_host

pytestmark = pytest.mark.skipif(not shutil.which("g++"), reason="needs a C++ compiler")


def run(
    folder: Path, *arguments: str, options: tuple[str, ...] = ("--auto", "all")
) -> subprocess.CompletedProcess[str]:
    (folder / "kernel.ptx").write_text(PTX)
    path = os.pathsep.join((str(SUPPORT / "cpp_launches" / "inside_program"), f"{ROOT}/src", str(ROOT)))
    environment = {**os.environ, "LD_LIBRARY_PATH": str(libraries()), "PYTHONPATH": path}
    command = [sys.executable, "-m", "warplens", "run", *options, "-o", "out.warplens"]
    return subprocess.run(
        [*command, str(libraries() / "program"), "kernel.ptx", *arguments],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=300,
    )  # fmt: skip


def test_the_kernels_of_a_compiled_program_are_recorded(tmp_path: Path) -> None:
    done = run(tmp_path, "3", "7")
    assert done.returncode == 7, done.stderr
    trace = wl.load(tmp_path / "out.warplens")
    assert {launch.kernel for launch in trace.meta.launches} == {"vector_add"}
    assert "load vector_add.cu:21" in trace.regions
    assert "out.warplens" in done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == ["result 1"] * 3, "stdout is the program's own"
    assert "LD_PRELOAD=" in lines, "the program's environment is as it was"
    assert "PYTHONHOME=" in lines
    assert "WARPLENS_HOST_REQUEST=" in lines
    assert lines[-1] == "child", "programs that it starts run without warplens"


def test_the_profile_ends_before_the_program_resets_the_device(tmp_path: Path) -> None:
    done = run(tmp_path, "3", "0", "reset")
    assert done.returncode == 0, done.stderr
    assert len(wl.load(tmp_path / "out.warplens").meta.launches) == 2, "the cold launch is left out"


def test_the_profile_ends_when_the_program_calls_exit(tmp_path: Path) -> None:
    done = run(tmp_path, "3", "4", "exit")
    assert done.returncode == 4, done.stderr
    assert len(wl.load(tmp_path / "out.warplens").meta.launches) == 2


def test_json_goes_to_stdout_and_the_programs_output_to_stderr(tmp_path: Path) -> None:
    done = run(tmp_path, "3", "0", options=("--auto", "--json"))
    assert json.loads(done.stdout)["kernels"][0]["kernel"] == "vector_add"
    assert "result 1" in done.stderr


def test_a_program_without_kernels_ends_as_it_would(tmp_path: Path) -> None:
    done = run(tmp_path, "0", "5")
    assert done.returncode == 5
    assert "no kernel was profiled" in done.stderr
    assert not (tmp_path / "out.warplens").exists()


def test_what_cannot_be_done_is_said_before_the_program_runs(tmp_path: Path) -> None:
    done = run(tmp_path, "3", "0", options=("--auto", "--ncu"))
    assert done.returncode == 2
    assert "--ncu: only for Python programs" in done.stderr
    done = run(tmp_path, "3", "0", options=())
    assert done.returncode == 2
    assert "is a compiled program, not a Python script; add --auto" in done.stderr
    assert done.stdout == ""


def test_a_program_that_is_linked_statically_is_refused(tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    if subprocess.run(["gcc", "-static", "main.c", "-o", "static"], cwd=tmp_path, capture_output=True).returncode:
        pytest.skip("needs a static C library")
    command = [sys.executable, "-m", "warplens", "run", "--auto", "./static"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}/src"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
    assert done.returncode == 2
    assert "is linked statically" in done.stderr


def test_a_python_without_a_shared_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(program_host.sysconfig, "get_config_var", {"LIBDIR": "/nowhere"}.get)
    with pytest.raises(WarplensError, match="this Python has no shared library"):
        program_host.python_library()
