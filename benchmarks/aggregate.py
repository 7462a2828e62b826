"""Cost and truth of mode="aggregate" against mode="trace". Needs a GPU.

    PYTHONPATH=src python -m benchmarks.aggregate --out DIR
    PYTHONPATH=src python -m benchmarks.aggregate --table DIR     # the tables of docs/results/aggregate.md

1. Loops of nothing but marks: cycles per region, of one warp alone and of a full SM.
2. Chains of dependent fmas in regions of known length, in both modes: counts, sums, extremes.
3. The five kernels of triton_overhead.py and the attention of examples/triton: slowdown in both modes, and whether both
   count the same executions.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from warplens.calibrate.known_lengths import ROUNDS
from warplens.calibrate.record_cost import source
from warplens.decode import decode
from warplens.driver.libcuda import Driver, driver
from warplens.record.aggregate_rows import AGGREGATE
from warplens.record.capture import Capture, Launch
from warplens.record.layout import HEADER, HEADER_BYTES, SLOT_BYTES, track_stride
from warplens.trace.model import Trace
from warplens.weave.weaver import weave
from warplens.weave.weaving import ParamBuffer, Weaving, capacity_of, shift_for

MODES = ("trace", "aggregate")
CROWD = 32
"""Warps per SM in a full SM."""


def run(lib: Driver, text: str, how: Weaving, warps: int, slots: int) -> tuple[Trace, np.ndarray]:
    """Run a calibration kernel in blocks of one warp; its trace, and the headers of its tracks."""
    woven = weave(text, buffer=ParamBuffer(-1), how=how)
    layout = woven.aggregates.get("warplens_calibrate")
    slots = layout.slots if layout else slots
    shift = shift_for(slots, "stop", woven.slack)
    size = 1 << shift
    allocation = lib.allocate((warps + 1) * size + SLOT_BYTES)
    try:
        address = -(-allocation // size) * size
        function = lib.function(lib.load(woven.text.encode() + b"\0"), "warplens_calibrate")
        assert function is not None
        arguments = [struct.pack("<Q", allocation + (warps + 1) * size), struct.pack("<Q", address | shift)]
        for _ in range(2):  # the first launch loads code
            lib.clear(allocation, (warps + 1) * size, 0)
            lib.launch(function, (warps, 1, 1), (32, 1, 1), arguments, 0, 0)
            lib.synchronize()
        rows = lib.download_rows(address, size, size, warps, size).reshape(warps, size)
    finally:
        lib.free(allocation)
    capacity = min(slots, capacity_of(shift, "stop", woven.slack))
    raw = np.zeros((warps, track_stride(capacity)), np.uint8)
    used = HEADER_BYTES + capacity * SLOT_BYTES
    raw[:, :used] = rows[:, :used]
    headers = np.ascontiguousarray(raw[:, :HEADER_BYTES]).view(HEADER).reshape(-1)
    extra = {AGGREGATE: layout.describe()} if layout else {}
    launch = Launch(
        "warplens_calibrate", (warps, 1, 1), (32, 1, 1), woven.regions, capacity, raw.reshape(-1), extra=extra
    )
    return decode(Capture([launch], device=lib.device())), headers


def cycles_per_region(headers: np.ndarray) -> float:
    """The median over SMs of the time from the first start to the last exit, per region of all its warps."""
    spent = []
    for sm in np.unique(headers["sm"]):
        mine = headers[headers["sm"] == sm]
        lasted = int(mine["exit_clock"].max()) - int(mine["start_clock"].min())
        spent.append(lasted / (ROUNDS * len(mine)))
    return float(np.median(spent))


def marks_alone(lib: Driver) -> dict[str, Any]:
    text, sms = source(("empty",)), lib.device().sm_count
    found: dict[str, Any] = {}
    for name, warps in (("one warp", 1), ("full SM", CROWD * sms)):
        found[name] = {
            mode: cycles_per_region(run(lib, text, Weaving(mode=mode), warps, 2 * ROUNDS)[1]) for mode in MODES
        }
        found[name]["ratio"] = found[name]["aggregate"] / found[name]["trace"]
        print(f"  {name}: {found[name]}", flush=True)
    return found


def known_lengths(lib: Driver) -> dict[str, Any]:
    text = source(("short", "long", "outer"))
    found: dict[str, Any] = {}
    for mode in MODES:
        trace, _ = run(lib, text, Weaving(mode=mode), 4, 16 * ROUNDS)
        found[mode] = {
            row.region: {"count": row.count, "total": row.total, "min": row.min, "max": row.max, "p50": row.p50}
            for row in trace.stats()
        }
    for region, row in found["trace"].items():
        other = found["aggregate"][region]
        row["same count"] = row["count"] == other["count"]
        row["cycles apart per execution"] = (other["total"] - row["total"]) / row["count"]
        print(f"  {region}: {row} {other}", flush=True)
    return found


def triton_kernels(seconds: float) -> dict[str, Any]:
    import torch

    from benchmarks.store_variants import attention_case
    from benchmarks.triton_overhead import Plain, kernels, measure

    found: dict[str, Any] = {}
    for kernel in [*kernels(), attention_case()]:
        marked = kernel.name == "attention"
        modes: dict[str, Any] = {"unmarked": Plain(1 if marked else 0)}
        modes |= {mode: ProfiledLaunches(mode, kernel.records + 64) for mode in MODES}
        times = measure(kernel, modes, 5, 8, seconds)
        base = times["unmarked"]
        row: dict[str, Any] = {"base_us": statistics.median(base)}
        stats = {}
        for mode in MODES:
            ratios = sorted(value / one for value, one in zip(times[mode], base, strict=True))
            row[mode] = {"slowdown": round(statistics.median(ratios), 4), "range": [ratios[0], ratios[-1]]}
            kernel.output.zero_()
            trace = modes[mode].trace_of(kernel.launch)
            torch.cuda.synchronize()
            stats[mode] = {one.region: one for one in trace.stats()}
        row["same counts"] = {name: one.count for name, one in stats["trace"].items()} == {
            name: one.count for name, one in stats["aggregate"].items()
        }
        row["means"] = {
            name: [round(stats[mode][name].mean, 1) for mode in MODES if name in stats[mode]] for name in stats["trace"]
        }
        added = [row[mode]["slowdown"] - 1 for mode in MODES]
        row["cost ratio"] = round(added[1] / added[0], 3) if added[0] > 0.005 else None
        found[kernel.label] = row
        print(f"  {kernel.label}: {json.dumps(row)}", flush=True)
    return found


class ProfiledLaunches:
    """Runs launches in one mode."""

    def __init__(self, mode: str, records: int) -> None:
        self.mode, self.records = mode, records

    def __call__(self, launch: Any, count: int) -> None:
        from warplens.frontends.triton import frontend
        from warplens.profiling.profile import Profile

        profile = Profile(records_per_warp=self.records, mode=self.mode)
        stop = frontend.start(profile)
        try:
            for _ in range(count):
                launch(1)
        finally:
            if stop is not None:
                stop()
        profile.collect()

    def trace_of(self, launch: Any) -> Trace:
        import warplens as wl
        import warplens.triton

        with wl.profile(records_per_warp=self.records, mode=self.mode) as profile:
            launch(1)
        return profile.trace


def table(folder: Path) -> str:
    found = json.loads((folder / "aggregate.json").read_text())
    lines = [f"{found['device']}, {found['date']}.", "", "| loop of empty regions | trace | aggregate | ratio |"]
    lines.append("|---|---|---|---|")
    for name, row in found["marks alone"].items():
        lines.append(
            f"| {name}, cycles per region | {row['trace']:.1f} | {row['aggregate']:.1f} | {row['ratio']:.2f} |"
        )
    lines += [
        "",
        "| region | executions | trace: min, p50, max | aggregate: min, p50, max | sum apart, per execution |",
    ]
    lines.append("|---|---|---|---|---|")
    for name, row in found["known lengths"]["trace"].items():
        other = found["known lengths"]["aggregate"][name]
        cells = [f"{one['min']}, {one['p50']:.0f}, {one['max']}" for one in (row, other)]
        same = f"{row['count']:,}" if row["same count"] else f"{row['count']:,} and {other['count']:,}"
        lines.append(f"| {name} | {same} | {cells[0]} | {cells[1]} | {row['cycles apart per execution']:+.2f} cycles |")
    lines += [
        "",
        "| kernel | trace | aggregate | added by aggregate / by trace | same counts |",
        "|---|---|---|---|---|",
    ]
    for name, row in found.get("triton", {}).items():
        ratio = "-" if row["cost ratio"] is None else f"{row['cost ratio']:.2f}"
        slow = [f"{row[mode]['slowdown']:.4f}" for mode in MODES]
        lines.append(f"| {name} | {slow[0]} | {slow[1]} | {ratio} | {'yes' if row['same counts'] else 'no'} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="write DIR/aggregate.json")
    parser.add_argument("--table", type=Path, metavar="DIR", help="print the tables of earlier results; needs no GPU")
    parser.add_argument("--seconds", type=float, default=6, help="per Triton kernel, after which no repeat is begun")
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    lib = driver()
    report: dict[str, Any] = {"device": lib.device().name, "date": time.strftime("%Y-%m-%d")}
    parts = {
        "marks alone": lambda: marks_alone(lib),
        "known lengths": lambda: known_lengths(lib),
        "triton": lambda: triton_kernels(options.seconds),
    }
    for name, measure in parts.items():
        print(name, flush=True)
        try:
            report[name] = measure()
        except Exception as error:
            print(f"{name}: {error!r}", file=sys.stderr, flush=True)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / "aggregate.json").write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
