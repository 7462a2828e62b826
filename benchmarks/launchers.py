"""Start jobs of several ranks in every way that this machine has, and check what `warplens run` leaves of them.

Launchers: torchrun, mpirun, Slurm (its variables), Ray, torch.multiprocessing and multiprocessing by spawn, fork and
forkserver, and plain subprocesses. Each job launches interpreted Triton kernels, calls collectives (gloo) and ends with
exit code 3 in rank 1. Checked: every rank and launch is in the dataset, the exit code is that of the job without
warplens, and after SIGKILL of rank 1 the dataset can be read. Needs torch; no GPU. What is not installed is left out.

Run: PYTHONPATH=src python -m benchmarks.launchers --out FOLDER [NAME ...]
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.ranks import free_port

ROOT = Path(__file__).parents[1]
STEPS, LIMIT_S = 6, 420
PROGRAM = """
import argparse, multiprocessing, os, signal, subprocess, sys, time
import torch, triton, triton.language as tl
import torch.distributed as dist
import torch.multiprocessing as torch_mp
import warplens.triton as wlt

@triton.jit
def step_kernel(x, y, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        v = tl.load(x + at, mask=at < n)
    with wlt.region("store"):
        tl.store(y + at, v + 1, mask=at < n)

def train(rank, size, given):
    torch.set_num_threads(1)
    address = f"tcp://127.0.0.1:{given.port}"
    dist.init_process_group("gloo", **({} if rank is None else dict(init_method=address, rank=rank, world_size=size)))
    rank, x, y = dist.get_rank(), torch.ones(256), torch.empty(256)
    for _ in range(given.steps):
        step_kernel[(2,)](x, y, 256, 128)
        dist.all_reduce(y)
    dist.barrier()
    if given.end == "kill":
        if rank == 1:
            part = f"{given.trace}/rank=1/part-0.parquet"
            while not os.path.exists(part):
                time.sleep(0.05)
            time.sleep(6)  # the next part has the launches since
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(300)
    dist.destroy_process_group()
    if rank == 1:
        sys.exit(given.end)

def ended(code):
    return max(code, 128 - code if code < 0 else 0)

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for name, kind in dict(job=str, size=int, port=str, end=str, steps=int, trace=str, rank=int).items():
        parser.add_argument(f"--{name}", type=kind)
    given = parser.parse_args()
    given.end = int(given.end) if given.end.isdigit() else given.end
    size = given.size
    if given.job == "launcher":
        train(None, size, given)
    elif given.job == "mpirun":
        train(int(os.environ["OMPI_COMM_WORLD_RANK"]), size, given)
    elif given.job == "rank":
        train(given.rank, size, given)
    elif given.job == "torch spawn":
        torch_mp.spawn(train, args=(size, given), nprocs=size)
    elif given.job == "ray":
        import ray
        ray.init(num_cpus=size, include_dashboard=False, log_to_driver=False)
        @ray.remote(num_cpus=1)
        class Worker:
            def run(self, rank):
                train(rank, size, given)
        workers = [Worker.remote() for _ in range(size)]
        failed, waiting = 0, [worker.run.remote(rank) for rank, worker in enumerate(workers)]
        while waiting and not (failed and given.end == "kill"):
            ended_now, waiting = ray.wait(waiting, timeout=300)
            for one in ended_now:
                try:
                    ray.get(one)
                except Exception:
                    failed = 3
        ray.shutdown()
        sys.exit(failed)
    else:
        if given.job == "subprocess":
            command = [sys.executable, *sys.argv, "--job", "rank"]
            ranks = [subprocess.Popen([*command, "--rank", str(rank)]) for rank in range(size)]
            codes = lambda: [one.poll() for one in ranks]
        else:
            context = multiprocessing.get_context(given.job)
            ranks = [context.Process(target=train, args=(rank, size, given)) for rank in range(size)]
            for one in ranks:
                one.start()
            codes = lambda: [one.exitcode for one in ranks]
        while None in codes() and not any(codes()):
            time.sleep(0.1)
        time.sleep(1)
        for one in ranks:
            if given.end == "kill":
                one.terminate()
            getattr(one, "join", getattr(one, "wait", None))()
        sys.exit(max(map(ended, codes())))
"""


@dataclass(frozen=True)
class Launcher:
    """How a job of `size` ranks is started: `outside` before `warplens run`, `start` inside the program."""

    size: int = 2
    start: str = "launcher"
    outside: Callable[[int], list[str]] = lambda size: []
    inside: tuple[str, ...] = ()
    """What `warplens run` runs, if not the program itself."""
    variables: tuple[str, str] | None = None
    """The variables for rank and size of a launcher that is played by starting each rank here."""
    needs: Callable[[], bool] = lambda: True


def _torchrun(size: int) -> list[str]:
    return ["-m", "torch.distributed.run", "--nproc-per-node", str(size), "--master-port", str(free_port())]


def _mpirun(size: int) -> list[str]:
    words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(size)]
    return [*words, "-x", "PYTHONPATH", "-x", "TRITON_INTERPRET", sys.executable]


LAUNCHERS = {
    "torchrun, 2 ranks": Launcher(2, outside=lambda size: [sys.executable, *_torchrun(size)]),
    "torchrun, 4 ranks": Launcher(4, outside=lambda size: [sys.executable, *_torchrun(size)]),
    "torchrun under warplens run": Launcher(
        2, inside=("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")
    ),
    "mpirun": Launcher(2, "mpirun", _mpirun, needs=lambda: shutil.which("mpirun") is not None),
    "Slurm (variables)": Launcher(2, "rank", variables=("SLURM_PROCID", "SLURM_NTASKS")),
    "torch.multiprocessing.spawn": Launcher(2, "torch spawn"),
    "multiprocessing, spawn": Launcher(2, "spawn"),
    "multiprocessing, fork": Launcher(2, "fork"),
    "multiprocessing, forkserver": Launcher(2, "forkserver"),
    "subprocess": Launcher(2, "subprocess"),
    "Ray": Launcher(2, "ray", needs=lambda: importlib.util.find_spec("ray") is not None),
}


def run(launcher: Launcher, folder: Path, end: str, *, profiled: bool) -> tuple[int, str]:
    """Run a job in a folder; return its exit code, and what it said."""
    folder.mkdir(parents=True)
    (folder / "program.py").write_text(PROGRAM)
    port, trace = str(free_port()), folder / "run.warplens"
    words = ["--job", launcher.start, "--size", str(launcher.size), "--port", port, "--end", end]
    program = [*launcher.inside, "program.py", *words, "--steps", str(STEPS), "--trace", str(trace)]
    wrapper = ["-m", "warplens", "run", "-o", str(trace), "--launches", "all"] if profiled else []
    outside = launcher.outside(launcher.size)
    command = [*(outside or [sys.executable]), *wrapper, *program]
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    job["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    copies: list[tuple[list[str], dict[str, str]]] = [(command, {})]
    if launcher.variables is not None:
        names = launcher.variables
        copies = [
            ([*command, "--rank", str(rank)], {names[0]: str(rank), names[1]: str(launcher.size)})
            for rank in range(launcher.size)
        ]
    log = folder / "job.log"
    with log.open("w") as out:
        jobs = [
            subprocess.Popen(words, cwd=folder, env=os.environ | job | own, stdout=out, stderr=subprocess.STDOUT)
            for words, own in copies
        ]
        until = time.monotonic() + LIMIT_S
        codes = []
        for one in jobs:
            if end == "kill" and launcher.variables is not None:
                jobs[1].wait(LIMIT_S)
                one.terminate()  # as Slurm does when a task fails
            codes.append(one.wait(max(until - time.monotonic(), 1)))
    return max(code if code >= 0 else 128 - code for code in codes), log.read_text()


def left(folder: Path) -> dict[str, Any]:
    """The ranks of a dataset with their launches, collectives and whether they ended."""
    import warplens as wl
    from warplens.commands.shared.job_report import summaries

    trace = wl.load(folder / "run.warplens")
    ranks = summaries(folder / "run.warplens")
    return {
        "launches": {one.rank: one.launches for one in ranks},
        "collectives": {one.rank: one.collectives for one in ranks},
        "ended": {one.rank: one.ended for one in ranks},
        "spans": len(trace),
    }


def check(launcher: Launcher, folder: Path) -> dict[str, Any]:
    """Run a job with and without warplens, and with a rank that is killed."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    code, said = run(launcher, folder / "profiled", "3", profiled=True)
    found: dict[str, Any] = {"exit_code": code} | left(folder / "profiled")
    now = resource.getrusage(resource.RUSAGE_CHILDREN)
    found["processor_s"] = round(now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime, 1)
    found["plain_exit_code"], _ = run(launcher, folder / "plain", "3", profiled=False)
    found["killed_exit_code"], _ = run(launcher, folder / "killed", "kill", profiled=True)
    found["killed"] = left(folder / "killed")
    whole = dict.fromkeys(range(launcher.size), STEPS)
    found["complete"] = found["launches"] == whole
    found["same_exit_code"] = found["exit_code"] == found["plain_exit_code"]
    found["readable_after_sigkill"] = found["killed"]["launches"] == whole and not found["killed"]["ended"][1]
    found["said"] = said[-2000:]
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("names", nargs="*", help="launchers to try; all by default")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {}
    for name, launcher in LAUNCHERS.items():
        if given.names and name not in given.names:
            continue
        if not launcher.needs():
            document[name] = {"left_out": "not installed"}
            continue
        with tempfile.TemporaryDirectory(prefix="launchers-") as folder:
            try:
                document[name] = check(launcher, Path(folder))
            except Exception as error:  # the others are still worth having
                logs = {path.parent.name: path.read_text()[-1500:] for path in Path(folder).rglob("job.log")}
                document[name] = {"error": repr(error)[:500], "logs": logs}
        (given.out / "launchers.json").write_text(json.dumps(document, indent=1))
        brief = {key: value for key, value in document[name].items() if key != "said"}
        print(f"{name}: {json.dumps(brief)}", file=sys.stderr, flush=True)
    print(json.dumps(document))


if __name__ == "__main__":
    main()
