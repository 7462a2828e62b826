"""Automatic marks on a real GPU: results bit for bit, the share of each warp's time that regions account for, and the
slowdown, measured and estimated.

Run: PYTHONPATH=src python -m benchmarks.auto_on_gpu [out.json [KERNEL...]]
Every row is printed and kept as soon as it is there, so a run that is cut short loses none.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

import tests.support.plain_kernels as kernels
import warplens as wl
from warplens.calibrate import record_cost

LAUNCHES = 6
Case = tuple[Callable[[], Any], list[torch.Tensor]]


def cases() -> dict[str, Callable[[], Case]]:
    def tensor(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.randn(*shape, device="cuda", dtype=dtype)

    def add() -> Case:
        x, y = tensor(1 << 24), tensor(1 << 24)
        out = torch.empty_like(x)
        return lambda: kernels.add[(x.numel() // 1024,)](x, y, out, x.numel(), 1024), [out]

    def row_softmax() -> Case:
        x = tensor(8192, 1000)
        out = torch.empty_like(x)
        return lambda: kernels.row_softmax[(8192,)](out, x, 1000, 1024), [out]

    def layer_norm() -> Case:
        x, w, b = tensor(4096, 4096), tensor(4096), tensor(4096)
        out = torch.empty_like(x)
        return lambda: kernels.layer_norm[(4096,)](x, out, w, b, 4096, 1e-5, 1024), [out]

    def gemm() -> Case:
        n = 2048
        a, b = tensor(n, n, dtype=torch.float16), tensor(n, n, dtype=torch.float16)
        c = torch.empty_like(a)
        tile = {"BM": 128, "BN": 128, "BK": 64, "num_warps": 4, "num_stages": 3}
        return lambda: kernels.gemm[(16, 16)](a, b, c, n, n, n, **tile), [c]

    def flash_forward() -> Case:
        q, k, v = (tensor(32, 2048, 64, dtype=torch.float16) for _ in range(3))
        out, lse = torch.empty_like(q), tensor(32, 2048)
        tile = {"BM": 128, "BN": 64, "HEAD": 64, "num_warps": 4, "num_stages": 3}
        return lambda: kernels.flash_forward[(16, 32)](q, k, v, out, lse, 0.18, 2048, **tile), [out, lse]

    def gelu() -> Case:
        start = tensor(1 << 24, dtype=torch.bfloat16)
        x, bias = start.clone(), tensor(3072, dtype=torch.bfloat16)

        def run() -> None:
            x.copy_(start)
            kernels.triton_poi_fused_add_gelu_0[(x.numel() // 1024,)](x, bias, x.numel(), 1024)

        return run, [x]

    return {"add": add, "row_softmax": row_softmax, "layer_norm": layer_norm, "gemm": gemm,
            "flash_forward": flash_forward, "triton_poi_fused_add_gelu_0": gelu}  # fmt: skip


def kernel_us(name: str, run: Callable[[], Any]) -> float:
    """The median of CUPTI's durations."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
        for _ in range(LAUNCHES):
            run()
        torch.cuda.synchronize()
    found = [event.device_time for event in profiler.events() if event.name == name]
    return float(np.median(found[len(found) // 4 :])) if found else float("nan")


def measure(name: str, make: Callable[[], Case], auto: str | bool, least: float) -> dict[str, Any]:
    run, results = make()
    run()
    torch.cuda.synchronize()
    expected = [result.clone() for result in results]
    plain = kernel_us(name, run)
    started = time.perf_counter()
    with wl.profile(auto=auto, least_occupancy=least, kernels=name) as profile:
        run()
        torch.cuda.synchronize()
        compiled = time.perf_counter() - started
        same = all(torch.equal(a, b) for a, b in zip(results, expected, strict=True))
        marked = kernel_us(name, run)
    trace = profile.trace
    infos = trace.meta.launches
    info, shares = infos[-1], [one.covered for one in infos if one.covered]
    return {
        "kernel": name, "auto": auto, "identical": same, "plain_us": plain, "marked_us": marked,
        "slowdown": marked / plain, "estimate": info.cost.get("slowdown"), "registers": info.extra["registers"],
        "spills": info.extra["spills"], "records_per_warp": info.extra["most_written"], "regions": len(trace.regions),
        "covered_least": min(one["least"] for one in shares),
        "covered_p5": min(one["p5"] for one in shares),
        "covered_median": float(np.median([one["median"] for one in shares])),
        "lost": trace.meta.losses.records_lost, "mismatched": trace.meta.losses.mismatched_ends,
        "compile_s": compiled, "notes": profile.notes,
    }  # fmt: skip


def main(path: str | None = None, *names: str) -> None:
    results: dict[str, Any] = {
        "device": torch.cuda.get_device_name(),
        "cost": dict(record_cost.constants()),
        "rows": [],
    }
    print(results["cost"], flush=True)
    for name, make in cases().items():
        for auto, least in ((True, 1.0), ("all", 0.0)) if not names or name in names else ():
            begin = time.perf_counter()
            try:
                row = measure(name, make, auto, least)
            except wl.WarplensError as error:
                row = {"kernel": name, "auto": auto, "refused": str(error)}
            results["rows"].append(row | {"seconds": time.perf_counter() - begin})
            print(json.dumps(results["rows"][-1]), flush=True)
            if path is not None:
                with open(path, "w") as file:
                    json.dump(results, file, indent=1)


if __name__ == "__main__":
    main(*sys.argv[1:])
