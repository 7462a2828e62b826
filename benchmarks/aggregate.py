"""Cost and truth of mode="aggregate" against mode="trace". Needs a GPU.

    PYTHONPATH=src python -m benchmarks.aggregate --out DIR
    PYTHONPATH=src python -m benchmarks.aggregate --sums --out DIR    # the kernels, by where executions are added up
    PYTHONPATH=src python -m benchmarks.aggregate --table DIR     # the tables of docs/results/aggregate.md

1. Loops of nothing but marks: cycles per region, of one warp alone and of a full SM.
2. Chains of dependent fmas in regions of known length, in both modes: counts, sums, extremes.
3. The five kernels of triton_overhead.py and the attention of examples/triton: slowdown in both modes, and whether both
   count the same executions. With --sums, aggregate mode adds up executions in each of the places of
   weave/sum_places.py. Each kernel's variants are compiled by a process of their own first, all kernels at once.
"""

from __future__ import annotations

import argparse
import json
import statistics
import struct
import subprocess
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
from warplens.weave.weaving import SUMS, ParamBuffer, Weaving, capacity_of, shift_for

MODES = ("trace", "aggregate")
ROOT = Path(__file__).resolve().parent.parent
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


def cases() -> dict[str, Any]:
    """The Triton kernels by their labels."""
    from benchmarks.store_variants import attention_case
    from benchmarks.triton_overhead import kernels

    return {kernel.label: kernel for kernel in [*kernels(), attention_case()]}


def modes_of(kernel: Any, sums: bool) -> dict[str, ProfiledLaunches]:
    """How to run a kernel: in both modes, or in aggregate mode once for each place of its sums."""
    found = {mode: ProfiledLaunches(mode, kernel.records + 64) for mode in MODES}
    if sums:
        found |= {f"sums={place}": ProfiledLaunches("aggregate", kernel.records + 64, place) for place in SUMS}
    return found


def compile_all(sums: bool) -> None:
    """Launch each kernel once in every mode, which leaves it in Triton's cache."""
    command = [sys.executable, "-m", "benchmarks.aggregate", *["--sums"] * sums, "--compile"]
    for process in [subprocess.Popen([*command, label], cwd=ROOT) for label in cases()]:
        process.wait()


def triton_kernels(seconds: float, sums: bool) -> dict[str, Any]:
    import torch

    from benchmarks.triton_overhead import Plain, measure

    compile_all(sums)
    found: dict[str, Any] = {}
    for kernel in cases().values():
        modes = modes_of(kernel, sums)
        plain = Plain(1 if kernel.name == "attention" else 0)
        times = measure(kernel, {"unmarked": plain, **modes}, 5, 8, seconds)
        base = times["unmarked"]
        row: dict[str, Any] = {"base_us": statistics.median(base)}
        stats, extra = {}, {}
        for mode, launches in modes.items():
            ratios = sorted(value / one for value, one in zip(times[mode], base, strict=True))
            kernel.output.zero_()
            trace = launches.trace_of(kernel.launch)
            torch.cuda.synchronize()
            stats[mode] = {one.region: one for one in trace.stats()}
            extra = trace.meta.launches[0].extra
            taken = {key: extra[key] for key in ("registers", "spills") if key in extra}
            row[mode] = {"slowdown": round(statistics.median(ratios), 4), "range": [ratios[0], ratios[-1]], **taken}
        counts = {mode: {name: one.count for name, one in rows.items()} for mode, rows in stats.items()}
        row["same counts"] = all(one == counts["trace"] for one in counts.values())
        row["means"] = {
            name: [round(rows[name].mean, 1) for rows in stats.values() if name in rows] for name in stats["trace"]
        }
        added = [row[mode]["slowdown"] - 1 for mode in MODES]
        row["cost ratio"] = round(added[1] / added[0], 3) if added[0] > 0.005 else None
        found[kernel.label] = row
        print(f"  {kernel.label}: {json.dumps(row)}", flush=True)
    return found


class ProfiledLaunches:
    """Runs launches in one mode, which may be woven with its sums in another place."""

    def __init__(self, mode: str, records: int, sums: str = "") -> None:
        self.mode, self.records = mode, records
        self.how = Weaving(mode=mode, sums=sums) if sums else None

    def __call__(self, launch: Any, count: int) -> None:
        from warplens.frontends.triton import frontend
        from warplens.profiling.profile import Profile

        profile = Profile(records_per_warp=self.records, mode=self.mode)
        frontend.override = self.how
        stop = frontend.start(profile)
        try:
            for _ in range(count):
                launch(1)
        finally:
            if stop is not None:
                stop()
            frontend.override = None
        profile.collect()

    def trace_of(self, launch: Any) -> Trace:
        import warplens as wl
        import warplens.triton
        from warplens.frontends.triton import frontend

        frontend.override = self.how
        try:
            with wl.profile(records_per_warp=self.records, mode=self.mode) as profile:
                launch(1)
        finally:
            frontend.override = None
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
    parser.add_argument("--sums", action="store_true", help="only the Triton kernels, by where executions are added up")
    parser.add_argument("--compile", metavar="LABEL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.table:
        print(table(options.table))
        return
    import torch

    if options.compile:
        kernel = cases()[options.compile]
        for mode in modes_of(kernel, options.sums).values():
            mode(kernel.launch, 1)
        return
    torch.cuda.init()
    torch.zeros(1, device="cuda")
    lib = driver()
    report: dict[str, Any] = {"device": lib.device().name, "date": time.strftime("%Y-%m-%d")}
    parts = {
        "marks alone": lambda: marks_alone(lib),
        "known lengths": lambda: known_lengths(lib),
        "triton": lambda: triton_kernels(options.seconds, options.sums),
    }
    if options.sums:
        parts = {"triton": parts["triton"]}
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
