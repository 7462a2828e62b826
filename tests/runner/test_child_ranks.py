"""A program that starts the ranks of its job itself: each is recorded, and nothing else changes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warplens as wl
from tests.support.paths import ROOT
from tests.support.stand_in_torch import put_torch

PROGRAM = """
import multiprocessing, os, pathlib, signal, sys, time
import triton, triton.language as tl
import torch.distributed as dist
from torch.distributed import device_mesh
import warplens.triton as wlt

@triton.jit
def kernel(N: tl.constexpr):
    with wlt.region("work"):
        for i in range(N):
            tl.arange(0, 8) + i

def together(name, rank, size):
    # A rank that has ended says nothing any more, and would be taken for one that never did.
    pathlib.Path(f"{name}{rank}").touch()
    until = time.monotonic() + 120
    while time.monotonic() < until and not all(os.path.exists(f"{name}{one}") for one in range(size)):
        time.sleep(0.02)

def rank(number, size, end, name):
    device_mesh.init_process_group("gloo", rank=number, world_size=size)
    for _ in range(5):
        kernel[(2,)](3)
    together(name, number, size)
    if end == "destroy":
        dist.destroy_process_group()
    if end in ("destroy", "leave"):
        os._exit(4)
    if end == "raise":
        raise RuntimeError("boom")
    if end == "wait":
        pathlib.Path("waits").touch()
        time.sleep(300)
    sys.exit(int(end))

def load_data():
    kernel[(2,)](3)

def start(method, target, *arguments):
    process = multiprocessing.get_context(method).Process(target=target, args=arguments)
    process.start()
    return process

if __name__ == "__main__":
    method, *ends = sys.argv[1:]
    ranks = [start(method, rank, number, len(ends), end, "r") for number, end in enumerate(ends)]
    others = [start(method, load_data)]
    if "wait" in ends:
        while not os.path.exists("waits"):
            time.sleep(0.02)
        ranks[ends.index("wait")].terminate()
    for one in ranks + others:
        one.join()
    print([one.exitcode for one in ranks])
    sys.exit(max(abs(one.exitcode) for one in ranks))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    pytest.importorskip("triton", reason="triton is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    put_torch(tmp_path / "packages")
    return tmp_path


def run(folder: Path, *words: str, code: int) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join([str(folder / "packages"), str(ROOT / "src")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths, "COLUMNS": "200"}
    command = [sys.executable, "-m", "warplens", "run", "-o", "run.warplens", *words]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == code, done.stderr
    return done


def launches(path: Path) -> dict[int, int]:
    counts: dict[int, int] = {}
    for info in wl.load(path).meta.launches:
        counts[info.rank] = counts.get(info.rank, 0) + 1
    return counts


@pytest.mark.parametrize("method", ["spawn", "fork"])
def test_each_process_that_joins_is_recorded_once(method: str, folder: Path) -> None:
    done = run(folder, "--auto", "--launches", "2", "program.py", method, "0", "raise", "3", code=3)
    assert done.stdout == "[0, 1, 3]\n"
    assert launches(folder / "run.warplens") == {0: 2, 1: 2, 2: 2}
    assert "RuntimeError: boom" in done.stderr
    assert done.stderr.count("only marks in the source are recorded") == 1, "one rank says it for all"
    assert "no kernel was profiled" not in done.stderr
    assert sorted(path.name for path in folder.rglob("*.warplens")) == ["run.warplens"]
    assert not list(folder.rglob("_running")), "all have ended"


def test_a_rank_that_a_signal_ends_leaves_its_part_and_dies_by_it(folder: Path) -> None:
    done = run(folder, "--json", "program.py", "fork", "leave", "wait", "destroy", code=15)
    assert "[4, -15, 4]" in done.stderr, "as without warplens"
    ranks = json.loads(done.stdout)["ranks"]
    assert [(one["rank"], one["launches"], one["ended"]) for one in ranks] == [
        (0, 5, False),
        (1, 5, False),
        (2, 5, False),
    ]
    again = run(folder, "program.py", "fork", "0", code=1)
    assert "already exists" in again.stderr
    run(folder, "--force", "--ranks", "0", "program.py", "fork", "0", "0", code=0)
    assert launches(folder / "run.warplens") == {0: 5}, "parts of the run before are gone"


def test_the_program_itself_may_be_a_rank_or_launch_kernels_besides(folder: Path) -> None:
    (folder / "joins.py").write_text(
        "import program\n"
        "program.kernel[(2,)](3)\n"
        "other = program.start('fork', program.rank, 1, 2, '0', 'r')\n"
        "program.rank(0, 2, '0', 'r')\n"
    )
    run(folder, "joins.py", code=0)
    assert launches(folder / "run.warplens") == {0: 6, 1: 5}
    (folder / "besides.py").write_text(
        "import program\n"
        "program.kernel[(2,)](3)\n"
        "ranks = [program.start('fork', program.rank, 0, 2, '0', name) for name in ('a', 'b')]\n"
        "program.together('a', 1, 2)\n"
        "ranks[0].join()\n"
        "program.together('b', 1, 2)\n"
        "ranks[1].join()\n"
    )
    done = run(folder, "--force", "besides.py", code=0)
    assert launches(folder / "run.warplens") == {0: 5}
    assert "rank 0 is recorded in another process" in done.stderr
    assert launches(folder / "run.main.warplens") == {0: 1}


def test_a_rank_in_a_process_of_its_own_ends_as_one(folder: Path) -> None:
    (folder / "starts.py").write_text(
        "import subprocess, sys\n"
        "ranks = [subprocess.Popen([sys.executable, 'one.py', str(rank), end]) for rank, end in ((0, '0'), (1, '5'))]\n"
        "sys.exit(max(one.wait() for one in ranks))\n"
    )
    (folder / "one.py").write_text("import sys, program\nprogram.rank(int(sys.argv[1]), 2, sys.argv[2], 'r')\n")
    done = run(folder, "--json", "starts.py", code=5)
    ranks = json.loads(done.stdout)["ranks"]
    assert [(one["rank"], one["ended"]) for one in ranks] == [(0, True), (1, True)], done.stderr


def test_other_python_processes_start_as_usual(folder: Path) -> None:
    (folder / "packages" / "sitecustomize.py").write_text("import sys\nsys.hidden = 1\n")
    (folder / "says.py").write_text(
        "import sys\nprint(sys.hidden, any(name.startswith('warplens') for name in sys.modules))\n"
    )
    (folder / "asks.py").write_text(
        "import subprocess, sys\n"
        "import program\n"
        "program.kernel[(2,)](3)\n"
        "subprocess.run([sys.executable, 'says.py'], check=True)\n"
    )
    assert run(folder, "asks.py", code=0).stdout == "1 False\n"
