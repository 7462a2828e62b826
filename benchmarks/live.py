"""The live view of a persistent kernel on a real GPU: does it grow, how old is what it shows, and what does it cost.

A CUDA kernel of one block per SM works through items for about 8 seconds, with items of about 1 ms and of about 20 µs.
Each runs without warplens, under `warplens run --full ring`, and under `warplens run --live` with a client that asks
for every state as a page does. Writes live.json, one document of each live run and the terminal's view to a folder,
and prints the same JSON.

Run: PYTHONPATH=src python -m benchmarks.live --out FOLDER [--dry-run]
`--dry-run` needs no GPU: the kernel is one that a driver without a GPU fills with records.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from itertools import pairwise
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
BLOCKS, THREADS = 132, 128
ITEMS = {"ms": (8_000, 400_000), "us": (400_000, 8_000)}
"""By length of an item: how many there are, and the turns of its longer loop."""
OLDEST_S = 1.0
KERNEL = r"""
#include <warplens.cuh>
extern "C" __global__ void persistent(float *out, int items, int turns, wl::Buffer prof) {
    wl::Kernel k(prof);
    float x = threadIdx.x;
    for (int item = 0; item < items; ++item) {
        {
            WL_REGION("load");
            for (int turn = 0; turn < turns / 4; ++turn) x = fmaf(x, 0.9999f, 0.5f);
        }
        WL_VALUE("item", item);
        WL_REGION("compute");
        for (int turn = 0; turn < turns; ++turn) x = fmaf(x, 0.9999f, 0.25f);
    }
    out[blockIdx.x * blockDim.x + threadIdx.x] = x;
}
"""


def run_kernel(length: str) -> dict[str, Any]:
    """Launch the kernel once briefly and once for long; return the time of the second."""
    import torch

    import warplens.cuda as wlcu

    items, turns = ITEMS[length]
    out = torch.zeros(BLOCKS * THREADS, device="cuda")
    kernel = wlcu.compile(KERNEL)["persistent"]
    kernel[BLOCKS, THREADS](out, 4, turns)
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    kernel[BLOCKS, THREADS](out, items, turns)
    end.record()
    torch.cuda.synchronize()
    return {"kernel_ms": begin.elapsed_time(end), "sum": float(out.double().sum())}


def run_fake(length: str) -> dict[str, Any]:
    """The same without a GPU."""
    from tests.support.hanging_kernel import HangingDriver
    from tests.support.persistent_kernel import PersistentKernel
    from warplens import session
    from warplens.calibrate import record_cost
    from warplens.driver import libcuda

    driver = HangingDriver()
    libcuda.driver = lambda: driver  # type: ignore[assignment]
    record_cost.constants = dict  # type: ignore[assignment]
    start = time.time()
    if session.active() is not None:
        full = session.active().options.full  # type: ignore[union-attr]
        kernel = PersistentKernel(driver, full=full).start(time.time_ns())
        while time.time() < start + 9:
            kernel.advance(time.time_ns())
            time.sleep(0.02)
        kernel.finish(time.time_ns())
    return {"kernel_ms": (time.time() - start) * 1e3, "sum": 0.0}


def start(folder: Path, length: str, words: list[str], *, dry: bool) -> subprocess.Popen[str]:
    """Start the program, with or without warplens."""
    script = [str(ROOT / "benchmarks" / "live.py"), "--program", length, *(["--dry-run"] if dry else [])]
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    return subprocess.Popen(
        [sys.executable, *words, *script], cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": paths},
    )  # fmt: skip


def finish(process: subprocess.Popen[str]) -> dict[str, Any]:
    """What the program printed."""
    out, said = process.communicate(timeout=120)
    lines = [line for line in out.splitlines() if line.startswith("{")]
    if process.returncode or not lines:
        return {"failed": process.returncode, "stderr": said[-3000:]}
    return {**json.loads(lines[-1]), "stderr": said.splitlines()[-12:]}


def watch(folder: Path, trace: Path, process: subprocess.Popen[str]) -> dict[str, Any]:
    """Ask for every state until the program has ended."""
    from warplens.errors import WarplensError
    from warplens.view.live_address import find_address

    try:
        url = find_address(trace, 60).url
    except WarplensError as problem:
        return {"problem": str(problem)}
    refused = {name: refusal(*asked) for name, asked in _wrong(url).items()}
    seen: list[dict[str, Any]] = []
    after, ended = 0, None
    beside: subprocess.Popen[str] | None = None
    while True:
        asked = time.time()
        try:
            with urllib.request.urlopen(f"{url}state?after={after}", timeout=10) as answer:
                data = answer.read()
        except OSError:
            break
        now = time.time_ns()
        document = json.loads(data)
        after = document["number"]
        if document["ended"]:
            ended = time.time()
            break
        running = any(one["running_s"] is not None for one in document["kernels"])
        if running:
            (folder / f"{trace.stem}.document.json").write_bytes(data)
            beside = beside or terminal(folder, trace)
        seen.append(
            {
                "at_s": now / 1e9, "number": after, "running": running, "age_s": document["age_s"],
                "newest_s": (now - document["newest_ns"]) / 1e9, "records": document["records"],
                "spans": document["timeline"]["spans"], "shown": document["timeline"]["shown"],
                "cost_s": document["cost_s"], "bytes": len(data), "took_s": now / 1e9 - asked,
                "where": [each["groups"][:2] for each in document["where"]], "warnings": document["warnings"],
            }
        )  # fmt: skip
    if beside is not None:
        (folder / f"{trace.stem}.terminal.txt").write_text("".join(beside.communicate(timeout=60)))
    return {
        "refused": refused,
        "ended_seen": ended is not None,
        **summary(seen),
        "states": seen[:: max(len(seen) // 12, 1)],
    }


def _wrong(url: str) -> dict[str, tuple[str, str]]:
    base, token = url.rstrip("/").rsplit("/", 1)
    host = base.removeprefix("http://")
    return {"wrong_token": (f"{base}/x{token[1:]}/state", host), "wrong_host": (f"{url}state", "evil.example:80")}


def refusal(url: str, host: str) -> int:
    """The status of an answer."""
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers={"Host": host}), timeout=10) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def terminal(folder: Path, trace: Path) -> subprocess.Popen[str]:
    """Start `warplens view --live --terminal`."""
    words = [sys.executable, "-m", "warplens", "view", "--live", "--terminal", str(trace)]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    return subprocess.Popen(words, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)


def summary(seen: list[dict[str, Any]]) -> dict[str, Any]:
    """Growth and age of the states in which the kernel ran."""
    running = [one for one in seen if one["running"]]
    if len(running) < 3:
        return {"states_while_running": len(running)}
    ages, lags = [one["age_s"] for one in running], [one["newest_s"] for one in running if one["spans"]]
    records = [one["records"] for one in running]
    apart = [b["at_s"] - a["at_s"] for a, b in pairwise(running)]
    return {
        "states_while_running": len(running),
        "seconds_while_running": running[-1]["at_s"] - running[0]["at_s"],
        "grows": all(b > a for a, b in pairwise(records[1:])),
        "records": records[-1],
        "age_s": {"p50": statistics.median(ages), "max": max(ages)},
        "newest_record_s": {"p50": statistics.median(lags), "max": max(lags)},
        "between_states_s": {"p50": statistics.median(apart), "max": max(apart)},
        "cost_s": {
            "p50": statistics.median(one["cost_s"] for one in running),
            "max": max(one["cost_s"] for one in running),
        },
        "fresh": max(age + gap for age, gap in zip(ages, [*apart, 0.0], strict=True)) < OLDEST_S,
    }


def measure(folder: Path, length: str, *, dry: bool) -> dict[str, Any]:
    results: dict[str, Any] = {}
    plain = finish(start(folder, length, [], dry=dry))
    results["plain"] = plain
    print(f"{length}: plain {plain.get('kernel_ms')} ms", file=sys.stderr, flush=True)
    for name, options in (("recorded", ["--full", "ring"]), ("live", ["--live"])):
        trace = folder / f"{length}_{name}.warplens"
        words = ["-m", "warplens", "run", *options, "-o", str(trace), "--force"]
        process = start(folder, length, words, dry=dry)
        seen = watch(folder, trace, process) if name == "live" else {}
        results[name] = {**finish(process), **seen}
        taken = results[name].get("kernel_ms")
        results[name]["slowdown"] = taken / plain["kernel_ms"] if taken and plain.get("kernel_ms") else None
        shown = {key: value for key, value in results[name].items() if key not in ("states", "stderr")}
        print(f"{length}: {name} {json.dumps(shown)}", file=sys.stderr, flush=True)
        trace.unlink(missing_ok=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="folder for the results")
    parser.add_argument("--program", choices=ITEMS, help="only launch the kernel with items of this length")
    parser.add_argument("--dry-run", action="store_true", help="what can be checked without a GPU")
    asked = parser.parse_args()
    if asked.program:
        print(json.dumps((run_fake if asked.dry_run else run_kernel)(asked.program)), flush=True)
        return
    if asked.out is None:
        parser.error("--out is required")
    folder = asked.out.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    results: dict[str, Any] = {}
    for length in ITEMS:
        results[length] = measure(folder, length, dry=asked.dry_run)
        (folder / "live.json").write_text(json.dumps(results, indent=1))
    print(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()
