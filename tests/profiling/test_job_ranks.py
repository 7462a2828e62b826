"""Jobs of several ranks: each writes its part of one folder, and none needs another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.paths import ROOT
from warplens.errors import UsageError
from warplens.profiling.job_ranks import JobRank, wants_rank
from warplens.trace.io import rank_part, save_rank

PROGRAM = """
import os, signal, sys
import triton, triton.language as tl
import warplens.triton as wlt

@triton.jit
def kernel(N: tl.constexpr):
    with wlt.region("work"):
        for i in range(N):
            tl.arange(0, 8) + i

kernel[(2,)](3)
if os.environ["RANK"] == "2":
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("environment", "rank", "size"),
    [
        ({}, 0, 1),
        ({"RANK": "3"}, 3, 1),
        ({"RANK": "3", "WORLD_SIZE": "8"}, 3, 8),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}, 1, 2),
        ({"PMI_RANK": "5", "PMI_SIZE": "6"}, 5, 6),
        ({"SLURM_PROCID": "7", "SLURM_NTASKS": "64"}, 7, 64),
        ({"RANK": "1", "WORLD_SIZE": "2", "SLURM_PROCID": "0", "SLURM_NTASKS": "1"}, 1, 2),
        ({"RANK": "1", "WORLD_SIZE": "many"}, 1, 1),
    ],
)
def test_launchers_say_which_rank_this_is(environment: dict[str, str], rank: int, size: int) -> None:
    assert JobRank.here(environment) == JobRank(rank, size)


def test_torch_distributed_says_it_where_no_launcher_does(monkeypatch: pytest.MonkeyPatch) -> None:
    started = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: True, get_rank=lambda: 2, get_world_size=lambda: 4
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", started)
    monkeypatch.delenv("RANK", raising=False)
    assert JobRank.here() == JobRank(2, 4)
    started.is_initialized = lambda: False
    assert JobRank.here() == JobRank()


def test_a_rank_that_is_no_number_is_refused() -> None:
    for given in ("x", "40000000000", "-1"):
        with pytest.raises(UsageError, match="RANK="):
            JobRank.here({"RANK": given})


@pytest.mark.parametrize(
    ("chosen", "wanted"),
    [("0", {0}), ("0,8-15", {0, *range(8, 16)}), ("sample:4", {0, 4, 8, 12}), ("sample:100", set(range(16)))],
)
def test_some_ranks_are_chosen(chosen: str, wanted: set[int]) -> None:
    assert {rank for rank in range(16) if wants_rank(chosen, JobRank(rank, 16))} == wanted


@pytest.mark.parametrize("chosen", ["", "a", "3-1", "1,", "sample:", "sample:0", "-2"])
def test_a_choice_that_cannot_be_read_is_a_usage_error(chosen: str) -> None:
    with pytest.raises(UsageError, match="--ranks"):
        wants_rank(chosen, JobRank(0, 4))


def test_parts_are_read_as_one_trace(tmp_path: Path) -> None:
    for rank in (0, 3):
        save_rank(make_trace([Span("load", 0, 10 + rank, rank=rank)]), tmp_path / "run.warplens", rank)
    assert rank_part(tmp_path / "run.warplens", 3).is_file()
    trace = wl.load(tmp_path / "run.warplens")
    assert sorted(trace.spans["rank"].to_pylist()) == [0, 3]


def run_rank(
    rank: int, size: int, folder: Path, *options: str, output: str | None = "run.warplens"
) -> subprocess.Popen[str]:
    job = {"RANK": str(rank), "WORLD_SIZE": str(size)}
    environment = {**os.environ, **job, "TRITON_INTERPRET": "1", "PYTHONPATH": str(ROOT / "src")}
    command = [sys.executable, "-m", "warplens", "run", *(["-o", output] if output else []), *options, "program.py"]
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def test_a_job_writes_one_folder_and_a_killed_rank_loses_only_its_own(tmp_path: Path) -> None:
    pytest.importorskip("triton", reason="triton is not installed")
    (tmp_path / "program.py").write_text(PROGRAM)
    ranks = [run_rank(rank, 4, tmp_path, "--ranks", "0-2") for rank in range(4)]
    said = [rank.communicate(timeout=240)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, -9, 0], said
    trace = wl.load(tmp_path / "run.warplens")
    assert sorted(set(trace.spans["rank"].to_pylist())) == [0, 1]
    alone = run_rank(0, 4, tmp_path, output=None)
    assert alone.communicate(timeout=240)[1]
    assert rank_part(tmp_path / "program.warplens", 0).is_file(), "the folder's name is that of the program"
    again = run_rank(0, 4, tmp_path)
    assert "already exists" in again.communicate(timeout=240)[1]
    assert again.returncode == 1
