"""Processor time and peak memory of each verb on a large trace.

    PYTHONPATH=src python -m benchmarks.large_traces [--spans 20000000] [--only stats] [--repeat 3]

Prints one JSON document: by verb, the seconds of processor time (user and system) and of waiting, the peak memory in
MB, the page faults, the load average and the exit code of a process of its own, including its start: of several runs
the one that took least processor time. Python's bytecode is cached, as it is for an installed package. And the bytes
per span of the file.
`copy` writes as many bytes as the Chrome JSON has, which is what the disk allows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.support.synthetic_capture import make_capture
from warplens.decode import decode
from warplens.record.capture import write_capture


def verbs(folder: Path) -> dict[str, list[str]]:
    """By name, the arguments of `warplens`."""
    first, second = str(folder / "a.warplens"), str(folder / "b.warplens")
    return {
        "stats": ["stats", first],
        "stats of the capture": ["stats", str(folder / "a.wlcap")],
        "findings": ["findings", first],
        "diff": ["diff", first, second],
        "view": ["view", "--terminal", first],
        "report": ["report", first, "-o", str(folder / "a.html"), "--force"],
        "json": ["export", first, str(folder / "a.json"), "--force"],
    }


def measured(arguments: list[str], folder: Path) -> dict[str, Any]:
    """Run one command in a process of its own, with bytecode from a cache in `folder`."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = kept | {"PYTHONPYCACHEPREFIX": str(folder / "bytecode")}
    begin = time.perf_counter()
    process = subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "user_s": used.ru_utime,
        "system_s": used.ru_stime,
        "wall_s": time.perf_counter() - begin,
        "peak_mb": used.ru_maxrss / 1024,
        "page_faults": used.ru_minflt,
        "load": os.getloadavg()[0],
        "exit_code": process.returncode,
    }


def make_files(spans: int, folder: Path) -> None:
    """Write two traces, and the capture of the first."""
    for seed, file in enumerate(("a", "b")):
        capture = make_capture(spans, seed=seed)
        if file == "a":
            write_capture(capture, folder / "a.wlcap")
        decode(capture).save(folder / f"{file}.warplens")


def least(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The run that took least processor time."""
    return min(runs, key=lambda run: run["user_s"] + run["system_s"])


def large_traces(spans: int, only: str = "", repeat: int = 3) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        # In a process of its own: the peak memory of a process counts from what its parent had.
        maker = get_context("spawn").Process(target=make_files, args=(spans, folder))
        maker.start()
        maker.join()
        file = folder / "a.warplens"
        rows = pq.read_metadata(file).num_rows
        found: dict[str, Any] = {"spans": rows, "bytes_per_span": file.stat().st_size / rows}
        for verb, arguments in verbs(folder).items():
            if only in verb:
                command = [sys.executable, "-m", "warplens", *arguments]
                measured([*command[:4], "--help"], folder)  # which fills the cache of bytecode
                found[verb] = least([measured(command, folder) for _ in range(repeat)])
                print(f"{verb}: {found[verb]}", file=sys.stderr)
        if (written := folder / "a.json").exists():
            blocks = f"count={written.stat().st_size >> 20}"
            found["copy"] = measured(["dd", "if=/dev/zero", f"of={folder / 'zeros'}", "bs=1M", blocks], folder)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=20_000_000, help="spans of each trace [default: 20000000]")
    parser.add_argument("--only", default="", help="measure only verbs with this in their name")
    parser.add_argument("--repeat", type=int, default=3, help="runs of each verb [default: 3]")
    given = parser.parse_args()
    print(json.dumps(large_traces(given.spans, given.only, given.repeat), indent=1))
