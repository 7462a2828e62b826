"""Processor time and peak memory of each verb on a large trace.

    PYTHONPATH=src python -m benchmarks.large_traces [--spans 20000000] [--only stats]

Prints one JSON document: by verb, the seconds of processor time (user and system), the peak memory in MB and the exit
code of a process of its own, including its start; and the bytes per span of the file.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.support.synthetic_capture import make_capture
from warplens.decode import decode


def verbs(folder: Path) -> dict[str, list[str]]:
    """By name, the arguments of `warplens`."""
    first, second = str(folder / "a.warplens"), str(folder / "b.warplens")
    return {
        "stats": ["stats", first],
        "findings": ["findings", first],
        "diff": ["diff", first, second],
        "view": ["view", "--terminal", first],
        "report": ["report", first, "-o", str(folder / "a.html")],
        "json": ["export", first, str(folder / "a.json")],
    }


def measured(arguments: list[str]) -> dict[str, Any]:
    """Run one verb in a process of its own."""
    process = subprocess.Popen(
        [sys.executable, "-m", "warplens", *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return {
        "user_s": used.ru_utime,
        "system_s": used.ru_stime,
        "peak_mb": used.ru_maxrss / 1024,
        "exit_code": process.returncode,
    }


def large_traces(spans: int, only: str = "") -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for seed, file in enumerate(("a", "b")):
            trace = decode(make_capture(spans, seed=seed))
            size = trace.save(folder / f"{file}.warplens").stat().st_size
        found: dict[str, Any] = {"spans": len(trace), "bytes_per_span": size / len(trace)}
        del trace
        for verb, arguments in verbs(folder).items():
            if only in verb:
                found[verb] = measured(arguments)
                print(f"{verb}: {found[verb]}", file=sys.stderr)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, default=20_000_000, help="spans of each trace [default: 20000000]")
    parser.add_argument("--only", default="", help="measure only verbs with this in their name")
    given = parser.parse_args()
    print(json.dumps(large_traces(given.spans, given.only), indent=1))
