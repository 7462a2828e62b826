"""How many kernels of CUDA programs are marked: `python benchmarks/marked_nvcc_kernels.py FILES --out FOLDER`.

FILES are PTX or CUDA sources, which nvcc compiles. Each kernel goes the way of an intercepted launch, with ptxas in the
place of the driver: from all default classes down to the lives of its warps, the first that does no harm. A block has
the threads that the kernel names, or 256. FOLDER keeps the PTX and one line of JSON per kernel; a second run goes on
where the first one ended. Needs no GPU. Prints one JSON document: for each project, what came out.
"""

from __future__ import annotations

import argparse
import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.lib.ptxas_driver import chosen_twin
from warplens.errors import WarplensError
from warplens.options import Options
from warplens.ptx.symbols import plain_name
from warplens.ptx.tree import parse

ARCH = "sm_90a"


class TooLong(BaseException):
    """A kernel took longer than its share of time. No code that survives any error may survive this one."""


def ptx_of(path: Path, folder: Path, options: list[str]) -> str:
    """The PTX of a file, compiled once if it is CUDA C++; empty if nvcc does not take it."""
    if path.suffix == ".ptx":
        return path.read_text()
    made = folder / f"{path.parent.name}-{path.stem}.ptx"
    if not made.exists():
        command = ["nvcc", "-ptx", f"-arch={ARCH}", "-lineinfo", "-std=c++17", *options, str(path), "-o", str(made)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{path}: {_first_error(done.stderr)}", file=sys.stderr)
            made.write_text("")
    return made.read_text()


def measure(text: str, symbol: str, seconds: int) -> dict[str, Any]:
    """What becomes of one kernel: `marked` with regions, `lives` of its warps alone, or `plain`, and why."""
    started = time.monotonic()
    try:
        with _limited(seconds):
            twin = chosen_twin(text, symbol, Options(auto=True))
        sites = len(twin.marked.sites.get(symbol, ()))
        found = {
            "result": "marked" if sites else "lives",
            "sites": sites,
            "variables": len(twin.shared),
            "why": twin.note,
        }
    except TooLong:
        found = {"result": "plain", "why": f"took longer than {seconds} s"}
    except WarplensError as error:
        found = {"result": "plain", "why": str(error)}
    return {**found, "seconds": round(time.monotonic() - started, 2)}


@contextmanager
def _limited(seconds: int) -> Iterator[None]:
    def end(*_: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, end)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def _first_error(log: str) -> str:
    return next((line for line in log.splitlines() if "error" in line), "nvcc failed")[:200]


def _reason(text: str) -> str:
    """A reason without names and numbers, so that equal ones are counted together."""
    return re.sub(r"\d[\d,]*", "N", re.sub(r"variable [\w$]+", "variable ...", text))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    results = Counter(row["result"] for row in rows)
    why = Counter(_reason(row["why"]) for row in rows if row["result"] != "marked")
    return {"kernels": len(rows), **{one: results[one] for one in ("marked", "lives", "plain")}, "why": dict(why)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="PTX files, or CUDA sources")
    parser.add_argument("--out", type=Path, required=True, help="folder of PTX and results")
    parser.add_argument("--project", default="", help="name of the project in the results")
    parser.add_argument("--nvcc", action="append", default=[], help="one more option for nvcc")
    parser.add_argument("--most", type=int, default=1 << 30, help="kernels of each file [default: all]")
    parser.add_argument("--seconds", type=int, default=120, help="most seconds for one kernel [default: 120]")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    log = options.out / "kernels.jsonl"
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    known = {(row["project"], row["file"], row["symbol"]) for row in rows}
    for path in options.files:
        text = ptx_of(path, options.out, options.nvcc)
        name = f"{path.parent.name}/{path.name}"
        for entry in parse(text).entries[: options.most] if text else ():
            if (options.project, name, entry.name) in known:
                continue
            row = {"project": options.project, "file": name, "symbol": entry.name, "kernel": plain_name(entry.name)}
            row |= measure(text, entry.name, options.seconds)
            rows.append(row)
            with log.open("a") as out:
                out.write(json.dumps(row) + "\n")
            print(f"{name} {row['kernel']}: {row['result']} ({row['seconds']} s)", file=sys.stderr, flush=True)
    projects = sorted({row["project"] for row in rows})
    found = {one or "files": summary([row for row in rows if row["project"] == one]) for one in projects}
    print(json.dumps({"projects": found, "total": summary(rows)}, indent=1))


if __name__ == "__main__":
    main()
