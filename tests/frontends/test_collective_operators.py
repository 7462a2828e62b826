"""Collectives that C++ starts are noted with their group: DistributedDataParallel's reducer, functional collectives.

Needs torch; `make test-frontends` runs it with a real one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import warplens as wl
from tests.support.paths import ROOT
from warplens.analyse.collective_entries import JobCollectives
from warplens.analyse.rank_lateness import rank_lateness
from warplens.record.rank_notes import RankNotes
from warplens.trace.io import rank_part, read

pytest.importorskip("triton", reason="triton is not installed")
pytest.importorskip("torch.nn.parallel", reason="torch is not installed; `make test-frontends` has it")

PROGRAM = """
import sys, time
import torch, triton, triton.language as tl
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
import warplens.triton as wlt
from torch.nn.parallel import DistributedDataParallel

@triton.jit
def kernel(N: tl.constexpr):
    with wlt.region("mix"):
        for i in range(N):
            tl.arange(0, 8) + i

def train(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    pair = dist.new_group([0, 1])
    model = DistributedDataParallel(torch.nn.Linear(8, 4), process_group=pair)
    for step in range(12):
        kernel[(1,)](2000 if rank == 1 else 1)
        model(torch.ones(1, 8)).sum().backward()
    functional.all_reduce(torch.ones(2), "sum", dist.group.WORLD).sum()
    dist.broadcast(torch.ones(2), src=1)
    dist.destroy_process_group()

if __name__ == "__main__":
    torch.multiprocessing.spawn(train, args=(sys.argv[1],), nprocs=2)
"""


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from socket import socket

    folder = tmp_path_factory.mktemp("job")
    (folder / "program.py").write_text(PROGRAM)
    with socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    paths = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    command = [sys.executable, "-m", "warplens", "run", "--json", "-o", "run.warplens", "program.py", port]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    assert [one["launches"] for one in json.loads(done.stdout)["ranks"]] == [12, 12]
    return folder / "run.warplens"


def test_what_cpp_starts_is_noted_with_its_group(dataset: Path) -> None:
    documents = [read(rank_part(dataset, rank)).meta.rank_notes[str(rank)] for rank in (0, 1)]
    notes = [RankNotes.from_json(one) for one in documents]
    calls = [[(one.group, one.number, one.operation) for one in rank.calls] for rank in notes]
    assert calls[0] == calls[1], "both ranks number them alike"
    reduced = [group for group, _, operation in calls[0] if operation == "all_reduce"]
    assert len(reduced) == 13, "one per step by the reducer, and a functional one"
    assert len(set(reduced[:12])) == 1
    assert reduced[12] != reduced[0], "in another group"
    assert calls[0][-1][2] == "broadcast"
    assert sum(operation == "broadcast" and group == reduced[12] for group, _, operation in calls[0]) == 1, "once"


def test_a_late_rank_is_named_by_the_collectives_of_ddp(dataset: Path) -> None:
    found = rank_lateness(JobCollectives.of(wl.load(dataset)))
    assert found is not None
    worst = found.late_ranks[0]
    assert worst.rank == 1
    assert worst.late >= 8, "of 12 steps"
    assert worst.cause is not None
    assert (worst.cause.kernel, worst.cause.region) == ("kernel", "mix")
