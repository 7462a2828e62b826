"""Jobs of several ranks on one GPU: a late rank is named, clocks lie within their bounds, and no rank needs another.

The ranks are processes of a torch.distributed job (gloo) under `warplens run`. They share one GPU, so the truth is
known: their globaltimers are the same clock. One rank is late through a longer region of a Triton kernel. Writes
ranks.json to a folder, and prints it.

Run: PYTHONPATH=src python -m benchmarks.ranks --out FOLDER [--dry-run]
`--dry-run` needs no GPU: Triton's interpreter runs the kernel, and torch works on the CPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
STEPS, PART_S = 100, 12.0
BASE_ROUNDS, LATE_ROUNDS = 20_000, 8_000_000
"""Processes that share a GPU take turns of about 2 ms. The late rank's kernel takes many turns, about 30 ms, so that
waiting for its turn makes no other rank late."""
PROGRAM = """
import json, os, sys, time
import torch, triton, triton.language as tl
import torch.distributed as dist
import warplens.triton as wlt

MODE, STEPS, BASE, LATE, DEVICE = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])

@triton.jit
def step_kernel(x, y, n, rounds, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        v = tl.load(x + at, mask=at < n)
    with wlt.region("mix"):
        for _ in range(rounds):
            v = v * 1.0001 + 0.5
    with wlt.region("store"):
        tl.store(y + at, v, mask=at < n)

def wait():
    if DEVICE == "cuda":
        torch.cuda.synchronize()

n = 264 * 128 if DEVICE == "cuda" else 2 * 128
x, y = torch.ones(n, device=DEVICE), torch.empty(n, device=DEVICE)
rounds = LATE if rank == size - 1 else BASE
if MODE == "alone":
    # No collectives: each rank goes on for as long as it likes.
    until = time.monotonic() + float(os.environ["SECONDS_OF_RANK"])
    while time.monotonic() < until:
        step_kernel[(n // 128,)](x, y, n, BASE, 128)
        wait()
        time.sleep(0.02)
else:
    dist.init_process_group("gloo")
    data = torch.ones(256, device=DEVICE if MODE == "device" else "cpu")
    times = []
    for step in range(STEPS):
        began = time.perf_counter()
        step_kernel[(n // 128,)](x, y, n, rounds, 128)
        if MODE != "device":
            wait()
        dist.all_reduce(data)
        data /= size
        wait()
        times.append(time.perf_counter() - began)
    calls = []
    for _ in range(STEPS):
        began = time.perf_counter()
        dist.all_reduce(data)
        wait()
        calls.append(time.perf_counter() - began)
    dist.barrier()
    if rank == 0:
        with open("times.json", "w") as out:
            json.dump({"step_s": sorted(times)[STEPS // 2], "call_s": sorted(calls)[STEPS // 2]}, out)
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Job:
    """The processes of one job, in a folder of their own."""

    def __init__(self, folder: Path, name: str, size: int, mode: str, dry: bool, *, seconds: str = "", on: bool = True):
        self.folder, self.size, self.began = folder / name, size, time.monotonic()
        self.folder.mkdir()
        # Triton's interpreter takes no length of a loop that is known only when it runs.
        text = PROGRAM.replace("rounds, BLOCK", "rounds: tl.constexpr, BLOCK") if dry else PROGRAM
        (self.folder / "program.py").write_text(text)
        work = ["20", "2", "30", "cpu"] if dry else [str(STEPS), str(BASE_ROUNDS), str(LATE_ROUNDS), "cuda"]
        port = str(free_port())
        self.ranks = []
        for rank in range(size):
            job = {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            job |= {"SECONDS_OF_RANK": seconds.split(",")[rank]} if seconds else {}
            job |= {"TRITON_INTERPRET": "1"} if dry else {}
            job["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
            run = ["-m", "warplens", "run", "-o", "run.warplens", "--launches", "all", "--skip", "1"] if on else []
            log = (self.folder / f"rank{rank}.log").open("w")
            command = [sys.executable, *run, "program.py", mode, *work]
            self.ranks.append(
                subprocess.Popen(command, cwd=self.folder, env=os.environ | job, stdout=log, stderr=subprocess.STDOUT)
            )

    @property
    def dataset(self) -> Path:
        return self.folder / "run.warplens"

    def wait(self, seconds: float = 150.0) -> None:
        until = time.monotonic() + seconds
        for rank in self.ranks:
            rank.wait(max(until - time.monotonic(), 1.0))
        for number, rank in enumerate(self.ranks):
            if rank.returncode not in (0, -signal.SIGKILL):
                said = (self.folder / f"rank{number}.log").read_text()[-1000:]
                raise RuntimeError(f"{self.folder.name}: rank {number} ended with {rank.returncode}:\n{said}")


def late_rank(job: Job) -> dict[str, Any]:
    """Whether the late rank is named with its region, by the analysis and by the findings."""
    import warplens as wl
    from warplens.analyse.collective_entries import JobCollectives
    from warplens.analyse.rank_lateness import rank_lateness
    from warplens.analyse.rank_path import rank_path
    from warplens.trace.rank_clocks import RankClocks

    trace = wl.load(job.dataset)
    collectives = JobCollectives(trace)
    found, path = rank_lateness(collectives), rank_path(collectives)
    assert found is not None
    worst = found.late_ranks[0] if found.late_ranks else None
    cause = worst.cause if worst else None
    said = [one for one in trace.findings() if one.kind == "late rank"]
    clocks = RankClocks.of(trace.meta)
    return {
        "ranks": job.size,
        "collectives": found.collectives,
        "late_rank": worst.rank if worst else None,
        "late_into": worst.late if worst else 0,
        "consistency": worst.consistency if worst else 0,
        "late_ns": worst.late_ns if worst else None,
        "region": cause.region if cause else None,
        "extra_ns": cause.extra_ns if cause else None,
        "named": bool(worst and worst.rank == job.size - 1 and cause and cause.region == "mix"),
        "findings": [one.what for one in said],
        "named_by_findings": any(one.evidence["rank"] == job.size - 1 and one.region == "mix" for one in said),
        "path_share": (path.ranks.get(job.size - 1, 0) / path.total_ns) if path else None,
        "bound_ns": clocks.worst_ns,
        "rank_errors_ns": {rank: clock.error_ns for rank, clock in clocks.ranks.items()},
    }


def offsets(job: Job, *, apart: str = "") -> dict[str, Any]:
    """How far launches of ranks that share a GPU are moved against each other, where the truth is zero.

    `apart` takes each rank for a host of its own, whose clocks are tied by collectives or by their Unix time.
    """
    from warplens.record.rank_notes import WALL, RankNotes
    from warplens.trace.clock_tie import tie_samples
    from warplens.trace.io import rank_part, read
    from warplens.trace.rank_placement import place_ranks

    metas = [read(rank_part(job.dataset, rank)).meta for rank in range(job.size)]
    drifts = []
    for at, meta in enumerate(metas):
        ((name, document),) = meta.rank_notes.items()
        notes = RankNotes.from_json(document)
        device = next((some for key, some in notes.samples.items() if key != WALL), notes.samples[WALL])
        drifts.append(tie_samples(device).line.drift * 1e6)
        if apart:
            notes = replace(notes, host=replace(notes.host, key=f"host {at}"))
            notes = replace(notes, calls=()) if apart == "wall clock" else notes
        metas[at] = replace(meta, rank_notes={name: notes.to_json()})
    placed = place_ranks(metas)
    by_rank = {rank: [by for (one, _), by in placed.moves.items() if one == rank] for rank in placed.clocks.ranks}
    bounds = placed.clocks.bounds()
    worst = {}
    for a, b in combinations(by_rank, 2):
        apart_ns = max(max(by_rank[a]) - min(by_rank[b]), max(by_rank[b]) - min(by_rank[a]))
        worst[f"{a}-{b}"] = {"offset_ns": apart_ns, "bound_ns": float(bounds[a, b])}
    return {
        "methods": [host.method for host in placed.clocks.hosts],
        "pairs": worst,
        "inside": all(one["offset_ns"] <= one["bound_ns"] for one in worst.values()),
        "drift_ppm": drifts,
    }


def causality(job: Job) -> dict[str, Any]:
    """Whether any rank left a collective before the last one had entered it, on the one clock that all share."""
    from warplens.record.rank_notes import RankNotes
    from warplens.trace.io import rank_part, read

    calls: dict[tuple[str, int], list[Any]] = {}
    for rank in range(job.size):
        (document,) = read(rank_part(job.dataset, rank)).meta.rank_notes.values()
        for call in RankNotes.from_json(document).calls:
            calls.setdefault((call.group, call.number), []).append(call)
    seen = violations = on_device = 0
    slack = []
    for some in calls.values():
        device = all(call.device_begin_ns and call.device_end_ns for call in some)
        on_device += device
        begin = max(call.device_begin_ns if device else call.begin_ns for call in some)
        ends = [call.device_end_ns if device else call.end_ns for call in some]
        if len(some) == job.size and all(ends):
            seen += 1
            violations += min(ends) < begin
            slack.append(min(ends) - begin)
    middle = statistics.median(slack) if slack else None
    return {"collectives": seen, "on_device": on_device, "violations": violations, "median_slack_ns": middle}


def alone(folder: Path, dry: bool) -> dict[str, Any]:
    """Ranks of different lengths, of which one is killed: nobody waits, and its part is there."""
    import warplens as wl
    from warplens.trace.io import rank_part, read

    job = Job(folder, "alone", 3, "alone", dry, seconds=f"3,{PART_S},600")
    first_parts: dict[int, float] = {}
    ended: dict[int, float] = {}
    killed_at = None
    while len(ended) < 3 and time.monotonic() - job.began < 150:
        for rank, process in enumerate(job.ranks):
            if rank not in first_parts and rank_part(job.dataset, rank).exists():
                first_parts[rank] = time.monotonic() - job.began
            if rank not in ended and process.poll() is not None:
                ended[rank] = time.monotonic() - job.began
        if killed_at is None and 2 in first_parts and time.monotonic() - job.began > first_parts[2] + 5:
            job.ranks[2].send_signal(signal.SIGKILL)
            killed_at = time.monotonic() - job.began
        time.sleep(0.05)
    job.wait(5)
    part = read(rank_part(job.dataset, 2))
    whole = wl.load(job.dataset)
    return {
        "first_part_s": first_parts,
        "ended_s": ended,
        "killed_s": killed_at,
        "launches_of_killed_rank": len(part.meta.launches),
        "rows_of_killed_rank": len(part),
        "ranks_read": sorted({info.rank for info in whole.meta.launches}),
        "parts_while_running": first_parts.get(2, 1e9) < (killed_at or 0) and first_parts.get(1, 1e9) < ended.get(1, 0),
        "nobody_waits": ended.get(0, 1e9) < ended.get(1, 0),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--dry-run", action="store_true")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        document[name] = value
        (given.out / "ranks.json").write_text(json.dumps(document, indent=1))
        print(f"{name}: {json.dumps(value)}", file=sys.stderr, flush=True)

    def attempt(name: str, what: Any) -> None:
        began = time.monotonic()
        try:
            note(name, what())
        except Exception as error:  # the other parts are still worth having
            note(name, {"error": repr(error)[:3000]})
        print(f"{name}: {time.monotonic() - began:.1f} s", file=sys.stderr, flush=True)

    def times(job: Job) -> dict[str, float]:
        found: dict[str, float] = json.loads((job.folder / "times.json").read_text())
        return found

    with tempfile.TemporaryDirectory(prefix="ranks-") as name:
        folder = Path(name)

        def profiled(size: int, mode: str) -> dict[str, Any]:
            job = Job(folder, f"{mode}{size}", size, mode, given.dry_run)
            job.wait()
            found = late_rank(job) | times(job) | {"same_host": offsets(job), "causality": causality(job)}
            found["by_collectives"] = offsets(job, apart="collectives")
            found["by_wall_clock"] = offsets(job, apart="wall clock")
            return found

        def plain() -> dict[str, Any]:
            job = Job(folder, "plain2", 2, "host", given.dry_run, on=False)
            job.wait()
            return times(job)

        attempt("two ranks", lambda: profiled(2, "host"))
        attempt("four ranks", lambda: profiled(4, "host"))
        attempt("two ranks, data on the device", lambda: profiled(2, "device"))
        attempt("two ranks, not profiled", plain)
        attempt("ranks without collectives", lambda: alone(folder, given.dry_run))
    print(json.dumps(document))


if __name__ == "__main__":
    main()
