"""What warplens costs a program that launches kernels: host time, unrecorded kernels, memory, the end of a profile.

    PYTHONPATH=src python -m benchmarks.launch_cost --out results
    PYTHONPATH=src python -m benchmarks.launch_cost --out results --without cute_host memory
    PYTHONPATH=src python -m benchmarks.launch_cost --out results --parts tutorials --tutorials DIR

Needs a GPU, torch and Triton; C++, CuPy, cuda.core and the CuTe DSL are measured where they are installed. Writes
launch.json into the folder, after each part. The parts `unrecorded` and `slowdowns` measure the device time of kernels,
`tutorials` runs Triton's own tutorials, whose sources (python/tutorials of the repository) DIR has. Each part has a
time limit, and one that fails does not take the others with it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
import triton

import warplens as wl
from benchmarks.lib.ending_phases import timed_steps
from benchmarks.lib.launch_hosts import (  # noqa: F401
    cpp_host,
    cuda_core_host,
    cupy_host,
    cute_host,
    small,
    summary,
    triton_host,
)
from benchmarks.lib.timed_parts import rounds, run_parts, work_off
from benchmarks.lib.tutorial_runs import run_tutorials

ENDED = 2000
CLOCKS = (time.perf_counter, time.process_time, time.thread_time)


def endings() -> dict[str, Any]:
    """Seconds from the last launch to the trace, of a profile with 2,000 recorded launches: wall time, processor time,
    that of the ending thread, and for each step its wall time and that of the ending thread."""
    x, y = torch.randn(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    found: dict[str, Any] = {}
    cases: dict[str, tuple[int, float, dict[str, Any]]] = {
        "8 blocks": (8, 0.0, {}),
        "8 blocks to a file": (8, 0.0, {"path": "small.warplens"}),
        "132 blocks": (132, 0.0, {}),
        "132 blocks to a file": (132, 0.0, {"path": "large.warplens"}),
        "132 blocks, sampled": (132, 0.0, {"trace_bytes": 8 << 20}),
        "132 blocks, 2 s later": (132, 2.0, {}),
        "132 blocks to a file, 2 s later": (132, 2.0, {"path": "large.warplens"}),
        "132 blocks, sampled, 2 s later": (132, 2.0, {"trace_bytes": 8 << 20}),
        "8 blocks to a file, 2 s later": (8, 2.0, {"path": "small.warplens"}),
    }
    for name, (blocks, pause, chosen) in cases.items():
        options = dict(chosen)
        tries = []
        for _ in rounds(2 if pause else 3):
            path = options.get("path")
            profile = wl.profile(path, **{key: value for key, value in options.items() if key != "path"})
            with timed_steps() as steps, profile:
                for number in range(ENDED):
                    small[(blocks,)](x, y, 1 << 14, BLOCK=128, num_warps=4)
                    if number == 40:
                        time.sleep(0.02)
                torch.cuda.synchronize()
                time.sleep(pause)
                before = [clock() for clock in CLOCKS]
            tries.append(([clock() - at for clock, at in zip(CLOCKS, before, strict=True)], steps))
        kept = len(profile.trace.meta.launches)
        (wall, cpu, thread), steps = min(tries, key=lambda one: one[0][0])
        found[name] = {
            "wall_s": wall,
            "cpu_s": cpu,
            "thread_s": thread,
            "steps": steps,
            "tries": [one for one, _ in tries],
            "launches": kept,
            "spans": len(profile.trace),
        }
        print(name, found[name], flush=True)
    return found


def beside_decoding() -> dict[str, Any]:
    """Host time of recorded launches, 4 ms apart, while the launches before them are decoded in the background, and
    where nothing is, in turn."""
    x, y = torch.randn(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    found_us: dict[str, list[list[float]]] = {"decoding": [], "not decoding": []}
    for _ in rounds(5, least=2):
        for kind, all_times in found_us.items():
            times: list[float] = []
            with wl.profile() as prof:
                if kind != "decoding":
                    prof.buffers.idle = lambda: False
                for _ in range(1200):  # these take longer to decode than the launches below take to be made
                    small[(132,)](x, y, 1 << 14, BLOCK=128, num_warps=4)
                for _ in range(120):
                    time.sleep(0.004)
                    before = time.perf_counter_ns()
                    small[(132,)](x, y, 1 << 14, BLOCK=128, num_warps=4)
                    times.append((time.perf_counter_ns() - before) / 1e3)
            all_times.append(times)
    together = {kind: sorted(us for times in all_times for us in times) for kind, all_times in found_us.items()}
    found: dict[str, Any] = {
        kind: {**summary(times), "p99": times[-len(times) // 100]} for kind, times in together.items()
    }
    pairs = zip(*found_us.values(), strict=True)
    found["rounds"] = len(found_us["decoding"])
    found["more"] = [statistics.median(one) - statistics.median(other) for one, other in pairs]
    return found


def memory() -> dict[str, Any]:
    """What torch says of its memory with and without a profile."""
    x, y = torch.randn(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()
    with wl.profile():
        for _ in range(20):
            small[(132,)](x, y, 1 << 14, BLOCK=128, num_warps=4)
        inside = torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated()
    return {"before": before, "inside": inside, "same": before == inside}


def device_us(call: Callable[[], Any], launches: int = 50) -> float:
    """Microseconds of the device per launch, back to back: the median of repeats."""
    times = []
    for _ in range(9):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)
        first.record()
        for _ in range(launches):
            call()
        last.record()
        last.synchronize()
        times.append(first.elapsed_time(last) * 1e3 / launches)
    return statistics.median(times)


def five_kernels() -> dict[str, Callable[[], Any]]:
    """The example kernels with marks, each with its arguments made before."""
    sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "triton"))
    import attention
    import matmul
    import softmax
    import vector_add

    def half(*shape: int) -> Any:
        return torch.randn(*shape, device="cuda", dtype=torch.float16)

    n = 1 << 24
    x, y, z = (torch.randn(n, device="cuda") for _ in range(3))
    rows, out = torch.randn(8192, 1000, device="cuda"), torch.empty(8192, 1000, device="cuda")
    a, b, c = half(4096, 4096), half(4096, 4096), half(4096, 4096)
    q, k, v, o = (half(16, 4096, 64) for _ in range(4))
    return {
        "vector_add": lambda: vector_add.vector_add[(n // 1024,)](x, y, z, n, BLOCK=1024),
        "softmax": lambda: softmax.softmax[(8192,)](out, rows, 1000, BLOCK=1024),
        "matmul": lambda: matmul.matmul[(32, 32)](a, b, c, 4096, 4096, 4096, 128, 128, 64, num_warps=4, num_stages=3),
        "matmul_8_warps": lambda: matmul.matmul[(32, 32)](
            a, b, c, 4096, 4096, 4096, 128, 128, 64, num_warps=8, num_stages=3
        ),
        "attention": lambda: attention.attention[(32, 16)](
            q, k, v, o, 0.18, 4096, 128, 64, 64, num_warps=4, num_stages=3
        ),
    }


def unrecorded() -> dict[str, Any]:
    """Launches that are not recorded against plain ones, taken in turn."""
    found: dict[str, Any] = {}
    for name, call in five_kernels().items():
        call()
        ratios = []
        for _ in rounds(5, least=2):
            plain = device_us(call, 20)
            with wl.profile(launches=1, auto=True) as prof:
                for _ in range(30):
                    call()
                ratios.append(device_us(call, 20) / plain)
        cost = prof.trace.meta.launches[0].cost
        found[name] = {"median": statistics.median(ratios), "ratios": ratios, "plain_us": plain, "cost": dict(cost)}
    return found


def slowdowns() -> dict[str, Any]:
    """The slowdown of recorded launches as a profile measures it, hand marks and automatic ones."""
    found: dict[str, Any] = {}
    for name, call in five_kernels().items():
        call()
        for kind, options in (("hand", {}), ("auto", {"auto": True})):
            with wl.profile(launches=10, **options) as prof:
                for _ in range(40):
                    call()
            cost = prof.trace.meta.launches[-1].cost
            found[f"{name} {kind}"] = {key: value for key, value in cost.items() if key.startswith("slowdown")}
    return found


def tutorials() -> dict[str, Any]:
    """Triton's own tutorials, in processes of their own."""
    if given.tutorials is None:
        return {"not measured": "--tutorials DIR names the folder of Triton's tutorials"}
    with tempfile.TemporaryDirectory() as folder:
        return run_tutorials(Path(given.tutorials), Path(folder), LIMITS["tutorials"] - _AROUND_S)


LIMITS = {
    "endings": 38.0,
    "beside_decoding": 24.0,
    "memory": 5.0,
    "triton_host": 8.0,
    "cpp_host": 14.0,
    "cupy_host": 8.0,
    "cuda_core_host": 8.0,
    "cute_host": 15.0,
    "unrecorded": 60.0,
    "slowdowns": 60.0,
    "tutorials": 84.0,
}
"""The parts, and the seconds that each may take."""
OTHERS = ("unrecorded", "slowdowns", "tutorials")
"""Not measured unless they are asked for."""
_AROUND_S = 6.0
"""What is left of their time when the tutorials have to end."""
given = argparse.Namespace(tutorials=None)
"""What the command line says."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default=".", help="folder for launch.json")
    usual = [name for name in LIMITS if name not in OTHERS]
    parser.add_argument("--parts", nargs="+", choices=LIMITS, default=usual, help="what to measure")
    parser.add_argument("--without", nargs="+", choices=LIMITS, default=[], help="what to leave out")
    parser.add_argument("--tutorials", help="folder of Triton's tutorials, for the part of this name")
    parser.add_argument("--seconds", type=float, default=110.0, help="how long all parts together may take")
    parser.add_argument("--found-in", help=argparse.SUPPRESS)  # this process measures, and leaves there what it finds
    parser.parse_args(namespace=given)
    given.tutorials = given.tutorials and Path(given.tutorials).resolve()
    if given.found_in is not None:
        found_in = Path(given.found_in)
        os.chdir(found_in)
        work_off({name: globals()[name] for name in given.parts}, LIMITS, found_in)
        return
    target = Path(given.out).resolve() / "launch.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    document: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "versions": {"torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]},
    }

    def tell(name: str, found: dict[str, Any]) -> None:
        document[name] = found
        print(f"{name} ({found.get('part_s', 0):.0f} s)", json.dumps(found)[:1500], flush=True)
        target.write_text(json.dumps(document, indent=1))

    with tempfile.TemporaryDirectory() as folder:

        def command(names: Sequence[str]) -> list[str]:
            more = ["--tutorials", str(given.tutorials)] if given.tutorials else []
            return [sys.executable, "-m", "benchmarks.launch_cost", "--found-in", folder, *more, "--parts", *names]

        wanted = {name: LIMITS[name] for name in given.parts if name not in given.without}
        run_parts(command, wanted, given.seconds, Path(folder), tell)


if __name__ == "__main__":
    main()
