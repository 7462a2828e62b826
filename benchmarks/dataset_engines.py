"""Statistics of datasets that grow: time, memory and results of the local engine and of Spark.

    PYTHONPATH=src python -m benchmarks.dataset_engines --out DIR [--verb stats|findings|diff] [--spans 10,30,100]
        [--engines local,spark:local[2]]

Writes a synthetic dataset of 64 ranks for each size (in millions of spans), runs a verb with `--engine` on it in a
process of its own, and deletes it (`diff` compares it with itself). DIR/dataset_engines_VERB.json gets, for each size
and engine, the seconds that passed, the processor time and the peak memory of the process and all it started, whether
all engines printed the same document, and the bytes that a selection of one kernel of one rank reads. Spark needs
pyspark and Java.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.support.synthetic_dataset import write_dataset

RANKS = 64
_TICKS = os.sysconf("SC_CLK_TCK")
_SELECT = """
import sys, pathlib
from warplens.decode.trace_loader import load
count = lambda: int(pathlib.Path("/proc/self/io").read_text().split()[1])
before = count()
print(len(load(sys.argv[1], rank=17, kernel="gemm")), count() - before)
"""


def tree(root: int) -> list[tuple[int, float, int]]:
    """The pid, the processor seconds and the memory of a process and of all its descendants."""
    stats: dict[int, list[str]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError):  # it ended meanwhile
                stats[int(folder.name)] = (folder / "stat").read_text().rpartition(")")[2].split()
    mine = {root}
    for _ in range(8):
        mine |= {pid for pid, fields in stats.items() if int(fields[1]) in mine}
    found = []
    for pid in mine & stats.keys():
        with suppress(OSError, IndexError):
            memory = Path(f"/proc/{pid}/smaps_rollup").read_text().split("Pss:")[1].split()[0]
            found.append((pid, sum(map(int, stats[pid][11:13])) / _TICKS, 1024 * int(memory)))
    return found


def measured(arguments: list[str]) -> dict[str, Any]:
    """Run `warplens` with these arguments, looking at its processes five times a second."""
    begin, peak, cpu = time.perf_counter(), 0, dict[int, float]()
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen([sys.executable, "-m", "warplens", *arguments], stdout=output)
        while process.poll() is None:
            seen = tree(process.pid)
            peak = max(peak, sum(memory for _, _, memory in seen))
            cpu |= {pid: seconds for pid, seconds, _ in seen}
            time.sleep(0.2)
        output.seek(0)
        document = output.read()
    if process.returncode:
        raise SystemExit(f"warplens {' '.join(arguments)} ended with code {process.returncode}")
    return {
        "wall_s": time.perf_counter() - begin,
        "cpu_s": sum(cpu.values()),
        "peak_mb": peak / (1 << 20),
        "result": hashlib.sha256(document).hexdigest()[:16],
    }


def exponent(runs: list[tuple[int, float]]) -> float:
    """The slope of log(amount) over log(spans), by least squares."""
    points = [(math.log(spans), math.log(max(amount, 1e-9))) for spans, amount in runs]
    mean_x, mean_y = (sum(values) / len(points) for values in zip(*points, strict=True))
    below = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / below if below else math.nan


def dataset_engines(verb: str, sizes: list[int], engines: list[str], scratch: Path) -> dict[str, Any]:
    runs: list[dict[str, Any]] = []
    for millions in sizes:
        folder = scratch / f"{millions}.warplens"
        begin = time.perf_counter()
        write_dataset(folder, RANKS, millions * 1_000_000)
        size = sum(file.stat().st_size for file in folder.rglob("*.parquet"))
        run: dict[str, Any] = {"millions": millions, "bytes": size, "write_s": time.perf_counter() - begin}
        print(f"{millions} million spans: {size / 1e6:,.0f} MB on disk", file=sys.stderr)
        given = [str(folder)] * (2 if verb == "diff" else 1)
        for engine in engines:
            run[engine] = measured([verb, *given, "--engine", engine, "--json"])
            print(f"  {engine}: {run[engine]}", file=sys.stderr)
        run["same_results"] = len({run[engine]["result"] for engine in engines}) == 1
        rows, read = subprocess.check_output([sys.executable, "-c", _SELECT, str(folder)], text=True).split()
        run["one_kernel_of_one_rank"] = {"rows": int(rows), "bytes_read": int(read)}
        runs.append(run)
        shutil.rmtree(folder)
    growth = {
        engine: {
            name: exponent([(run["millions"], run[engine][name]) for run in runs]) for name in ("cpu_s", "peak_mb")
        }
        for engine in engines
    }
    return {"verb": verb, "ranks": RANKS, "cores": os.cpu_count(), "runs": runs, "exponents": growth}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument("--verb", default="stats", choices=("stats", "findings", "diff"), help="[default: stats]")
    parser.add_argument("--spans", default="10,30,100", help="sizes in millions of spans [default: 10,30,100]")
    parser.add_argument("--engines", default="local,spark:local[2]", help="engines [default: local,spark:local[2]]")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        sizes = [int(one) for one in given.spans.split(",")]
        found = dataset_engines(given.verb, sizes, given.engines.split(","), Path(scratch))
    (given.out / f"dataset_engines_{given.verb}.json").write_text(json.dumps(found, indent=1) + "\n")
    print(json.dumps(found["exponents"], indent=1))


if __name__ == "__main__":
    main()
