"""Processor time of `warplens stats` from a trace file and from the raw capture that it was made from.

    PYTHONPATH=src python -m benchmarks.loading [--spans 20000 300000 2000000] [--repeats 5]

Prints one JSON document: for each size, the seconds of processor time (user and system, the least of all repeats) of a
process of its own, start included, and of `wl.load(...).stats()` in a process that has done it before.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.large_traces import measured
from tests.support.processor_time import least_processor_time
from tests.support.synthetic_capture import make_capture
from warplens.decode import decode
from warplens.decode.trace_loader import load
from warplens.record.capture import write_capture


def loading(spans: int, repeats: int) -> dict[str, Any]:
    """The times for one size, by what is read."""
    with tempfile.TemporaryDirectory() as name:
        capture = make_capture(spans)
        files = {
            "capture": write_capture(capture, Path(name) / "t.wlcap"),
            "trace": decode(capture).save(Path(name) / "t.warplens"),
        }
        found: dict[str, Any] = {"spans": spans}
        for kind, file in files.items():
            command = [sys.executable, "-m", "warplens", "stats", str(file)]
            runs = [measured(command, Path(name)) for _ in range(repeats)]
            assert all(run["exit_code"] == 0 for run in runs), command
            found[f"{kind}_process_s"] = min(run["user_s"] + run["system_s"] for run in runs)
            found[f"{kind}_warm_s"] = least_processor_time(lambda file=file: load(file).stats(), repeats)
        print(found, file=sys.stderr)
    return found


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--spans", type=int, nargs="+", default=[20_000, 300_000, 2_000_000, 20_000_000])
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    print(json.dumps([loading(spans, given.repeats) for spans in given.spans], indent=1))
