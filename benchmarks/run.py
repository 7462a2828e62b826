"""`make bench`: one JSON document with what the core does per second, on this machine, beside its peers."""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import warplens as wl
from benchmarks import host_launch, weaving_growth
from benchmarks.analyses import seconds_per_analysis
from benchmarks.growth import growth
from benchmarks.lib import hook_cost
from benchmarks.lib.peers import peers
from tests.support.synthetic_capture import make_capture
from warplens import native
from warplens.decode import decode
from warplens.record.capture import write_capture

_REPEATS = 5


def best(work: Callable[[], Any], repeats: int = _REPEATS) -> float:
    """The fastest of some runs, in seconds: what the work takes when nothing else does."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


def decode_rate(records: int) -> dict[str, float]:
    capture = make_capture(records // 2)
    launch = capture.launches[0]
    total = launch.tracks * launch.capacity
    small = make_capture(records // 20)
    small_total = small.launches[0].tracks * small.launches[0].capacity
    return {
        "decode_records_per_s": total / best(lambda: decode(capture)),
        "decode_records_per_s_numpy": small_total / best(lambda: decode(small, native=False), 2),
    }


def pftrace_rate(folder: Path, spans: int) -> dict[str, float]:
    """Raw capture file to .pftrace, end to end, in a fresh process each so that its peak memory is its own."""
    source, target = folder / "raw.wlcap", folder / "out.pftrace"
    capture = make_capture(spans)
    write_capture(capture, source)
    raw = sum(len(launch.raw) for launch in capture.launches)
    runs = [
        json.loads(subprocess.check_output([sys.executable, __file__, "--child", source, target])) for _ in range(3)
    ]
    fastest = min(runs, key=lambda run: run["seconds"])
    return {
        "pftrace_spans_per_s": fastest["spans"] / fastest["seconds"],
        "pftrace_bytes_per_span": target.stat().st_size / fastest["spans"],
        "peak_memory_ratio": min(run["peak_bytes"] for run in runs) / raw,
    }


def child(source: str, target: str) -> None:
    start = time.perf_counter()
    trace = wl.load(source)
    trace.export(target, force=True)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({"seconds": seconds, "spans": len(trace), "peak_bytes": peak}))


def load_and_stats(folder: Path, spans: int) -> dict[str, float]:
    path = folder / "trace.warplens"
    trace = decode(make_capture(spans))
    start = time.perf_counter()
    trace.save(path, force=True)
    saved = time.perf_counter() - start
    del trace
    return {
        "load_and_stats_s": best(lambda: wl.load(path).stats(), 3),
        "save_s": saved,
        "warplens_bytes_per_span": path.stat().st_size / spans,
    }


def import_time() -> float:
    command = [
        sys.executable,
        "-c",
        "import time; t = time.perf_counter(); import warplens; print(time.perf_counter() - t)",
    ]
    return min(float(subprocess.check_output(command)) for _ in range(5))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="1 is the stated size: 10 M records, 5 M spans")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        return child(*options.child)
    spans = int(5_000_000 * options.scale)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result: dict[str, Any] = {
            **decode_rate(2 * spans),
            **pftrace_rate(folder, spans),
            **load_and_stats(folder, spans),
            "import_s": import_time(),
            "analyses_s": seconds_per_analysis(spans),
            "host_launch": host_launch.measure(),
            "hook_cost": hook_cost.measure(),
            "weaving_growth": weaving_growth.growth(
                [max(100, int(size * options.scale)) for size in weaving_growth.SIZES]
            ),
            "growth": growth(options.scale),
            "peers": peers(folder, min(spans, 100_000)),
            "machine": {
                "cores": os.cpu_count(),
                "python": platform.python_version(),
                "numpy": np.__version__,
                "pyarrow": pyarrow.__version__,
                "native": native.why_not() or "compiled",
                "spans": spans,
            },
        }
    print(json.dumps(result, indent=1))
    return None


if __name__ == "__main__":
    main()
