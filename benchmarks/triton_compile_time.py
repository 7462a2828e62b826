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
from dataclasses import replace

import triton

from tests.support.triton_examples import Job, jobs
from warplens.frontends.triton.compile_hook import CompileHook, Recipe
from warplens.weave.weaving import Weaving

PLAIN, WOVEN, AGAIN = "plain", "woven", "woven after plain"


def seconds(job: Job, capability: int, mode: str) -> tuple[float, float]:
    """The time that passes, and the processor's."""
    hook = CompileHook(Recipe(Weaving()))
    with tempfile.TemporaryDirectory() as folder:
        triton.knobs.cache.dir = folder
        if mode == AGAIN:
            job.compile(capability)
        if mode != PLAIN:
            hook.install()
            # As a launch does it: on Triton 3.6 the mode is what tells the two kernels apart.
            job = replace(job, options={**job.options, "instrumentation_mode": _mode()})
        try:
            start, used = time.perf_counter(), sum(os.times()[:4])
            made = job.compile(capability)
            took = time.perf_counter() - start, sum(os.times()[:4]) - used
        finally:
            if mode != PLAIN:
                hook.remove()
    if ("@woven" in made.asm["ptx"]) is (mode == PLAIN):
        raise SystemExit(f"{job.name}: the hook did not do what it was asked for")
    return took


def _mode() -> str:
    return str(triton.knobs.compilation.instrumentation_mode)


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
