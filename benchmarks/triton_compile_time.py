"""What weaving adds to compiling a Triton kernel, from source to cubin. Needs triton, no GPU.

    PYTHONPATH=src python -m benchmarks.triton_compile_time

Compiles the examples' fused attention and matmul in turn without and inside a profile's compile hook, with an empty
cache each time, and once more where Triton has the plain kernel in its cache, as after a run without a profile. Prints
the medians of the time that passed and of the processor time, ptxas included, and of their ratios, as one JSON
document. ptxas looks at the plain kernel while it makes the woven one: where no core is idle the two take turns, so on
a machine with other work look at the fastest.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time

import triton

from tests.support.triton_examples import Job, compile_woven, jobs
from warplens.frontends.triton.weaving_compiler import Recipe
from warplens.weave.weaving import Weaving

PLAIN, WOVEN, AGAIN = "plain", "woven", "woven after plain"


def seconds(job: Job, capability: int, mode: str) -> tuple[float, float]:
    """The time that passes, and the processor's."""
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder
        plain = job.compile(capability).asm["cubin"] if mode == AGAIN else None
        triton.knobs.cache.dir = f"{folder}/woven"
        start, used = time.perf_counter(), sum(os.times()[:4])
        made = job.compile(capability) if mode == PLAIN else compile_woven(job, capability, Recipe(Weaving()), plain)
        took = time.perf_counter() - start, sum(os.times()[:4]) - used
    if ("@woven" in made.asm["ptx"]) is (mode == PLAIN):
        raise SystemExit(f"{job.name}: the compiler did not do what it was asked for")
    return took


def measure(job: Job, capability: int, repeats: int) -> dict[str, float]:
    times: dict[str, list[tuple[float, float]]] = {PLAIN: [], WOVEN: [], AGAIN: []}
    for _ in range(repeats + 1):
        for mode, kept in times.items():
            kept.append(seconds(job, capability, mode))
    report = {}
    for index, clock in enumerate(("", "processor ")):
        plain, woven, again = ([took[index] for took in kept[1:]] for kept in times.values())
        report |= {
            f"{clock}plain_s": statistics.median(plain),
            f"{clock}woven_s": statistics.median(woven),
            f"{clock}ratio": statistics.median(b / a for a, b in zip(plain, woven, strict=True)),
            f"{clock}ratio after plain": statistics.median(b / a for a, b in zip(plain, again, strict=True)),
            f"{clock}ratio of the fastest": min(woven) / min(plain),
        }
    return {name.replace(" ", "_"): round(value, 4) for name, value in report.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--capability", type=int, default=90)
    options = parser.parse_args()
    report = {
        job.name: measure(job, options.capability, options.repeats)
        for job in jobs(options.capability)
        if job.name in ("attention", "matmul")
    }
    print(json.dumps({"benchmark": "triton_compile_time", "triton": triton.__version__, "kernels": report}, indent=1))


if __name__ == "__main__":
    main()
