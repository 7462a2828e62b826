"""What weaving adds to compiling a Triton kernel, from source to cubin. Needs triton, no GPU.

    PYTHONPATH=src python benchmarks/triton_compile_time.py

Compiles the examples' fused attention and matmul in turn without and inside a profile's compile hook, with an empty
cache each time, and prints the medians of the processor time, ptxas included, and of their ratio as one JSON document.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "unit"))

import triton
from triton_examples import Job, jobs

from warplens._triton.compile import CompileHook, Recipe
from warplens.weave.options import Weaving


def seconds(job: Job, capability: int, weave: bool) -> float:
    hook = CompileHook(Recipe(Weaving()))
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder
        if weave:
            hook.install()
        try:
            start = sum(os.times()[:4])
            made = job.compile(capability)
            took = sum(os.times()[:4]) - start
        finally:
            if weave:
                hook.remove()
    if ("@woven" in made.asm["ptx"]) is not weave:
        raise SystemExit(f"{job.name}: the hook did not do what it was asked for")
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--capability", type=int, default=90)
    options = parser.parse_args()
    report = {}
    for job in jobs(options.capability):
        if job.name not in ("attention", "matmul"):
            continue
        times: dict[bool, list[float]] = {False: [], True: []}
        for _ in range(options.repeats + 1):
            for weave in times:
                times[weave].append(seconds(job, options.capability, weave))
        plain, woven = (statistics.median(values[1:]) for values in times.values())
        ratio = statistics.median(b / a for a, b in zip(times[False][1:], times[True][1:], strict=True))
        report[job.name] = {"plain_s": round(plain, 4), "woven_s": round(woven, 4), "ratio": round(ratio, 3)}
    print(json.dumps({"benchmark": "triton_compile_time", "triton": triton.__version__, "kernels": report}, indent=1))


if __name__ == "__main__":
    main()
