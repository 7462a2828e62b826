"""Files are written whole or not at all, under any name, by any number of processes, on a full disk."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from tests.support.paths import ROOT
from warplens.errors import WarplensError
from warplens.files import atomic_write

ENVIRONMENT = os.environ | {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return make_trace([Span("a", 0, 10), Span("b", 20, 5)]).save(tmp_path / "t.warplens")


def run(*arguments: object, **options: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "warplens", *map(str, arguments)]
    return subprocess.run(command, text=True, env=ENVIRONMENT, timeout=120, **({"capture_output": True} | options))  # type: ignore[call-overload,no-any-return]


@pytest.mark.parametrize("letter", ["n", "é"])
@pytest.mark.parametrize("length", [200, 236, 243, 244, 255])
def test_a_long_name_can_be_written(tmp_path: Path, letter: str, length: int) -> None:
    name = (letter * 300).encode()[: length - 9].decode(errors="ignore") + ".warplens"
    make_trace([Span("a", 0, 10)]).save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_part_that_a_killed_process_left_is_removed_and_a_running_ones_is_not(tmp_path: Path) -> None:
    target = tmp_path / "t.bin"
    old, new = tmp_path / ".t.bin.abcd1234.part", tmp_path / ".t.bin.efgh5678.part"
    others = [tmp_path / ".t.bin.notes.part", tmp_path / ".u.bin.abcd1234.part", tmp_path / "t.bin.abcd1234.part"]
    for path in (old, new, *others):
        path.write_bytes(b"half")
        if path is not new:
            os.utime(path, (1, 1))
    with atomic_write(target) as out:
        out.write(b"whole")
    assert target.read_bytes() == b"whole"
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in (target, new, *others)}


def test_a_file_that_appears_meanwhile_is_not_overwritten_without_force(tmp_path: Path) -> None:
    target = tmp_path / "t.bin"
    with pytest.raises(WarplensError, match="already exists"):
        with atomic_write(target, force=False) as out:
            out.write(b"ours")
            target.write_bytes(b"theirs")
    assert target.read_bytes() == b"theirs"
    assert [path.name for path in tmp_path.iterdir()] == ["t.bin"]


def test_of_six_exports_to_one_name_one_wins_and_the_file_is_whole(trace: Path) -> None:
    target = trace.with_suffix(".json")
    with ThreadPoolExecutor(6) as pool:
        codes = [done.returncode for done in pool.map(lambda _: run("export", trace, "-o", target), range(6))]
    assert sorted(codes) == [0, 1, 1, 1, 1, 1]
    assert '"traceEvents"' in target.read_text()
    assert sorted(path.name for path in trace.parent.iterdir()) == ["t.json", "t.warplens"]


def test_a_file_size_limit_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024, 1024))

    code = f"""
from tests.support.builders import Span, make_trace
from warplens.errors import WarplensError
try:
    make_trace([Span("a", at * 10, 5) for at in range(1000)]).save({str(tmp_path / "t.warplens")!r})
except WarplensError as error:
    print(error)
"""
    # -B: under the limit, Python would keep bytecode that is cut off, and every later process would fail on it.
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], env=ENVIRONMENT, text=True, capture_output=True, preexec_fn=limit, cwd=ROOT
    )
    assert "t.warplens: cannot be written (File too large)" in done.stdout, done.stderr
    assert not list(tmp_path.iterdir()), "no part is left"


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_streams_are_no_failure(trace: Path, closed: str) -> None:
    done = subprocess.run(
        f"exec {sys.executable} -m warplens stats {trace} {closed}",
        shell=True, env=ENVIRONMENT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


def test_a_reader_that_stops_early_is_no_failure(trace: Path) -> None:
    done = subprocess.run(
        f"set -o pipefail; {sys.executable} -m warplens stats {trace} --json | head -c 1",
        shell=True, executable="/bin/bash", env=ENVIRONMENT, capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_a_full_disk_behind_stdout_is_one_line(trace: Path) -> None:
    with open("/dev/full", "w") as full:
        done = run("stats", trace, "--json", capture_output=False, stdout=full, stderr=subprocess.PIPE)
    assert done.returncode == 1
    assert done.stderr == "warplens: standard output: No space left on device\n"


def test_an_error_without_a_stderr_still_has_its_exit_code(tmp_path: Path) -> None:
    with open("/dev/full", "w") as full:
        assert run("stats", tmp_path / "none", capture_output=False, stderr=full).returncode == 1
