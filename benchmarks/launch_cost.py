"""What warplens costs a program that launches kernels: host time, unrecorded kernels, memory, the end of a profile.

    PYTHONPATH=src python -m benchmarks.launch_cost --out launch.json

Needs a GPU, torch and Triton; CuPy and cuda.core are measured where they are installed.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

import warplens as wl
import warplens.triton as wlt

LAUNCHES = 2000
REPEATS = 7


@triton.jit
def small(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    with wlt.region("load"):
        value = tl.load(x + offs, mask=offs < n)
    with wlt.region("store"):
        tl.store(y + offs, value * 2, mask=offs < n)


@triton.jit
def other(x, y, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + offs, tl.load(x + offs, mask=offs < n) + 1, mask=offs < n)


def host_us(call: Callable[[], Any], launches: int = LAUNCHES) -> dict[str, float]:
    """Microseconds of the launching thread per call: medians of repeats, and of single calls."""
    times, singles = [], []
    for _ in range(REPEATS):
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(launches):
            call()
        times.append((time.perf_counter() - start) / launches * 1e6)
        torch.cuda.synchronize()
    for _ in range(500):
        start = time.perf_counter()
        call()
        singles.append((time.perf_counter() - start) * 1e6)
    torch.cuda.synchronize()
    return {"mean": statistics.median(times), "median_single": statistics.median(singles)}


def triton_host() -> dict[str, Any]:
    x, y = torch.randn(1 << 14, device="cuda"), torch.empty(1 << 14, device="cuda")
    grid = (132,)

    def call() -> None:
        small[grid](x, y, 1 << 14, BLOCK=128, num_warps=4)

    def unrelated() -> None:
        other[grid](x, y, 1 << 14, BLOCK=128, num_warps=4)

    call()
    unrelated()
    found: dict[str, Any] = {"plain": host_us(call), "plain_other": host_us(unrelated)}
    with wl.profile(launches=10, kernels="small") as prof:
        for _ in range(40):
            call()
        found["closed"] = host_us(call)
        found["not_profiled"] = host_us(unrelated)
    found["recorded_of_closed"] = len(prof.trace.meta.launches)
    costs = [info.cost for info in prof.trace.meta.launches]
    found["slowdown"] = {key: value for key, value in costs[-1].items() if key.startswith("slowdown")}
    profile = wl.profile()
    with profile:
        for _ in range(50):
            call()
        recorded = []
        for _ in range(3):
            torch.cuda.synchronize()
            start = time.perf_counter()
            for _ in range(LAUNCHES // 3):
                call()
            recorded.append((time.perf_counter() - start) / (LAUNCHES // 3) * 1e6)
        torch.cuda.synchronize()
        ended = time.perf_counter()
    found["recorded"] = {"mean": statistics.median(recorded), "all": recorded}
    found["end_s"] = time.perf_counter() - ended
    found["end_launches"] = len(profile.trace.meta.launches)
    found["plain_again"] = host_us(call)
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
        for _ in range(5):
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="launch.json")
    given = parser.parse_args()
    target = Path(given.out).resolve()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        parts: dict[str, Any] = {
            "device": torch.cuda.get_device_name(),
            "versions": {"torch": torch.__version__, "triton": triton.__version__, "python": sys.version.split()[0]},
        }
        for part in (triton_host, memory, unrecorded, slowdowns):
            try:
                parts[part.__name__] = part()
            except Exception as error:  # one part that fails must not lose the others
                parts[part.__name__] = {"failed": repr(error)}
            print(part.__name__, json.dumps(parts[part.__name__], default=str), flush=True)
    target.write_text(json.dumps(parts, indent=1, default=str))


if __name__ == "__main__":
    main()
