"""Whole-kernel slowdown of woven marks and of Proton on five Triton kernels, in one interleaved run. Needs a GPU.

    PYTHONPATH=src python -m benchmarks.triton_overhead                  # the default weaving against Proton
    PYTHONPATH=src python -m benchmarks.triton_overhead --ablation       # every variant of the weaver as well

Kernel times are CUPTI durations. In each repeat every mode runs the same number of launches, in an order that rotates
from repeat to repeat; a mode's slowdown is the median over repeats of its median time over the unmarked one's in the
same repeat. One JSON document on stdout, progress on stderr.
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
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
import triton.profiler as proton
import triton.profiler.language as pl
import triton.profiler.mode as pmode
from triton.profiler.hooks.instrumentation import InstrumentationHook

import warplens.triton as wlt
from warplens.frontends.triton import frontend
from warplens.profiling.profile import Profile
from warplens.record.layout import HEADER, HEADER_BYTES, RECORD
from warplens.weave.weaving import Weaving

pl.enable_semantic("triton")


@triton.jit
def fma_chain(x, y, n_iter, BLOCK: tl.constexpr, LENGTH: tl.constexpr, MARK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.load(x + offs)
    for _ in range(n_iter):
        if MARK == 1:
            wlt.begin("work")
        if MARK == 2:
            pl.enter_scope("work")
        for _ in tl.static_range(LENGTH):
            acc = acc * 1.0001 + 0.5
        if MARK == 1:
            wlt.end("work")
        if MARK == 2:
            pl.exit_scope("work")
    tl.store(y + offs, acc)


@triton.jit
def gemm(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, MARK: tl.constexpr):
    rm = tl.program_id(0) * BM + tl.arange(0, BM)
    rn = tl.program_id(1) * BN + tl.arange(0, BN)
    rk = tl.arange(0, BK)
    pa = a + rm[:, None] * K + rk[None, :]
    pb = b + rk[:, None] * N + rn[None, :]
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(0, K, BK):
        if MARK == 1:
            wlt.begin("load")
        if MARK == 2:
            pl.enter_scope("load")
        x = tl.load(pa)
        y = tl.load(pb)
        if MARK == 1:
            wlt.end("load")
            wlt.begin("dot")
        if MARK == 2:
            pl.exit_scope("load")
            pl.enter_scope("dot")
        acc = tl.dot(x, y, acc)
        if MARK == 1:
            wlt.end("dot")
        if MARK == 2:
            pl.exit_scope("dot")
        pa += BK
        pb += BK * N
    tl.store(c + rm[:, None] * N + rn[None, :], acc.to(c.dtype.element_ty))


@dataclass(frozen=True)
class Kernel:
    """One of the five: how to launch it, what it writes, and how many records each warp leaves."""

    label: str
    name: str
    launch: Callable[[int], object]
    output: Any
    records: int
    launches: int


def kernels() -> list[Kernel]:
    torch.manual_seed(0)
    x = torch.randn(1 << 20, device="cuda")
    y = torch.empty_like(x)
    n = 4096
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.float16) for _ in range(2))
    c = torch.empty(n, n, device="cuda", dtype=torch.float16)

    def fma(label: str, blocks: int, length: int, iterations: int) -> Kernel:
        def launch(mark: int) -> object:
            return fma_chain[(blocks,)](x, y, iterations, 128, length, mark, num_warps=4)

        return Kernel(label, "fma_chain", launch, y, 2 * iterations, 15)

    def mm(label: str, width: int, warps: int) -> Kernel:
        def launch(mark: int) -> object:
            grid = (n // 128, n // width)
            return gemm[grid](a, b, c, n, n, n, 128, width, 64, mark, num_warps=warps, num_stages=3)

        return Kernel(label, "gemm", launch, c, 4 * n // 64, 15)

    return [
        fma("fma64 132x4", 132, 64, 1000),
        fma("fma64 528x4", 528, 64, 1000),
        fma("fma256 132x4", 132, 256, 500),
        mm("gemm 4096 4 warps", 128, 4),
        mm("gemm 4096 8 warps", 256, 8),
    ]


PROTON_MODES = {
    "proton shared": {"buffer_type": "shared"},
    "proton shared clock32": {"buffer_type": "shared", "optimizations": "clock32"},
    "proton global clock32": {"buffer_type": "global", "buffer_size": 1 << 17, "optimizations": "clock32"},
}


def variants(ablation: bool, stores: list[str]) -> dict[str, Weaving]:
    """The default weaving, other places of its stores and, for the ablation, the default with one thing changed."""
    found = {"warplens": Weaving()} | {f"store={store}": Weaving(store=store) for store in stores}
    if ablation:
        found |= {f"store={store}": Weaving(store=store) for store in ("now", "late", "end", "defer", "spread")}
        found |= {
            "constants off": Weaving(constants=False),
            "keep=0": Weaving(keep=0),
            "pin off": Weaving(pin=False),
            "pair off": Weaving(pair=False),
            "fuse off": Weaving(fuse=False),
            "limit off": Weaving(limit=False),
            "ring": Weaving(full="ring"),
        }
    return found


class Woven:
    """Runs launches under one weaving, and keeps the last launch's records."""

    def __init__(self, how: Weaving, records: int) -> None:
        self.how, self.records = how, records
        self.last: Any = None

    def __call__(self, launch: Callable[[int], object], count: int) -> None:
        profile = Profile(records_per_warp=self.records, full=self.how.full)
        frontend.override = self.how
        stop = frontend.start(profile)
        try:
            for _ in range(count):
                launch(1)
        finally:
            stop()
            frontend.override = None
        self.last = profile.run._pending[-1][0]
        profile.collect()  # bring the records home and give the memory back before anything else is timed


class Proton:
    """Runs launches under one of Proton's modes. Its decoding, minutes of host time per kernel, is left out: it is no
    part of a kernel's time."""

    def __init__(self, options: dict[str, Any], folder: str) -> None:
        self.options, self.path = options, os.path.join(folder, "peer")
        InstrumentationHook.enter = InstrumentationHook.exit = lambda self, metadata: None

    def __call__(self, launch: Callable[[int], object], count: int) -> None:
        proton.start(self.path, backend="instrumentation", data="tree", mode=pmode.Default(**self.options))
        for _ in range(count):
            launch(2)
        torch.cuda.synchronize()
        proton.finalize()


class Plain:
    def __init__(self, mark: int) -> None:
        self.mark = mark

    def __call__(self, launch: Callable[[int], object], count: int) -> None:
        for _ in range(count):
            launch(self.mark)


def measure(
    kernel: Kernel, modes: dict[str, Any], repeats: int, launches: int, seconds: float
) -> dict[str, list[float]]:
    """Median kernel time in microseconds of every mode, per repeat; no new repeat after `seconds`, but at least 3."""
    for mode in modes.values():
        mode(kernel.launch, 2)
    torch.cuda.synchronize()
    times: dict[str, list[float]] = {name: [] for name in modes}
    names = list(modes)
    start = time.monotonic()
    for repeat in range(repeats):
        if repeat >= 3 and time.monotonic() - start > seconds:
            break
        turn = repeat * len(names) // repeats
        order = names[turn:] + names[:turn]
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            for name in order:
                modes[name](kernel.launch, launches)
            torch.cuda.synchronize()
        events = [event for event in profiler.events() if event.name.startswith(kernel.name)]
        events.sort(key=lambda event: event.time_range.start)
        if len(events) != launches * len(order):
            raise SystemExit(f"{kernel.label}: {len(events)} kernel events for {launches * len(order)} launches")
        for name in order:
            mine, events = events[:launches], events[launches:]
            times[name].append(statistics.median(event.device_time for event in mine))
    return times


def inspect(launch: Any, kernel: Kernel) -> dict[str, Any]:
    """What one woven launch recorded: how much was kept, and how long its first region read."""
    captured = launch.collect()
    tracks = captured.raw.reshape(captured.tracks, captured.stride)
    headers = np.ascontiguousarray(tracks[:, :HEADER_BYTES]).view(HEADER).reshape(-1)
    slots = np.ascontiguousarray(tracks[:, HEADER_BYTES : HEADER_BYTES + captured.capacity * 8]).view(RECORD)
    result: dict[str, Any] = {
        "policy": captured.extra["store"],
        "tracks": int(captured.tracks),
        "written": [int(headers["written"].min()), int(headers["written"].max())],
        "expected": kernel.records,
        "exited": bool((headers["state"] == 1).all()),
    }
    if captured.full == "stop" and captured.capacity >= kernel.records:
        begins, ends = slots[:, 0 : kernel.records : 2], slots[:, 1 : kernel.records : 2]
        cycles = (ends["clock"] - begins["clock"]).astype(np.int64).ravel()
        kinds = np.unique(begins["word0"] & 7).tolist() + np.unique(ends["word0"] & 7).tolist()
        quantiles = np.percentile(cycles, [0, 5, 50, 95, 100]).tolist()
        result |= {"kinds": kinds, "cycles min p5 p50 p95 max": quantiles}
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ablation", action="store_true", help="measure every variant of the weaver")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--launches", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=60, help="per kernel, after which no repeat is begun")
    parser.add_argument(
        "--kernel", nargs="*", default=[], help="only kernels whose label contains one of these, in this order"
    )
    parser.add_argument("--no-proton", action="store_true")
    parser.add_argument("--store", nargs="*", default=[], help="also measure these places of the stores")
    options = parser.parse_args()
    report: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kernel in _chosen(options.kernel):
            report[kernel.label] = _row(kernel, options, folder)
            _progress(kernel.label, report[kernel.label])
    print(json.dumps({
        "benchmark": "triton_overhead",
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "repeats": options.repeats,
        "launches": options.launches,
        "kernels": report,
    }, indent=1))  # fmt: skip


def _chosen(parts: list[str]) -> list[Kernel]:
    """The kernels whose label contains a part, in the order of the parts; all without any."""
    found = kernels()
    return [kernel for part in parts for kernel in found if part in kernel.label] if parts else found


def _row(kernel: Kernel, options: argparse.Namespace, folder: str) -> dict[str, Any]:
    kernel.output.zero_()
    kernel.launch(0)
    torch.cuda.synchronize()
    expected = kernel.output.clone()
    woven = {name: Woven(how, kernel.records + 64) for name, how in variants(options.ablation, options.store).items()}
    modes: dict[str, Any] = {"unmarked": Plain(0), "marks, not woven": Plain(1)}
    if not options.no_proton:
        modes |= {name: Proton(mode, folder) for name, mode in PROTON_MODES.items()}
    modes |= woven
    times = measure(kernel, modes, options.repeats, options.launches, options.seconds)
    base = times["unmarked"]
    row: dict[str, Any] = {"base_us": statistics.median(base), "repeats": len(base), "slowdown": {}, "woven": {}}
    for name, values in times.items():
        ratios = sorted(value / base for value, base in zip(values, times["unmarked"], strict=True))
        row["slowdown"][name] = [round(statistics.median(ratios), 4), round(ratios[0], 4), round(ratios[-1], 4)]
    for name, mode in woven.items():
        kernel.output.zero_()
        mode(kernel.launch, 1)
        torch.cuda.synchronize()
        row["woven"][name] = inspect(mode.last, kernel) | {"identical": bool(torch.equal(kernel.output, expected))}
    return row


def _progress(label: str, row: dict[str, Any]) -> None:
    print(f"{label}: base {row['base_us']:.1f} us", file=sys.stderr)
    for name, (ratio, low, high) in sorted(row["slowdown"].items(), key=lambda item: item[1]):
        note = row["woven"].get(name, {}).get("cycles min p5 p50 p95 max", "")
        print(f"    {ratio:.4f}  [{low:.4f} {high:.4f}]  {name}  {note}", file=sys.stderr)


if __name__ == "__main__":
    main()
