"""How right the numbers are on this GPU: regions of known length, empty and nested ones, and placement across SMs.

    python benchmarks/accuracy.py [--direct] [--json FILE]

Marks are woven, as `warplens.cuda.compile` does it; --direct measures those the compiler sees, as in other programs.
Expected cycles come from the same work timed without marks in the same kernel: for chains of fmas and of shared-memory
loads the amount times the cycles of one, taken from the loops of 64 and 256; for L2, whose latency depends on the
address, the work twice per iteration less once; for sleep the clock read right before and after it. Corrected durations
are `Trace.time_shift()` with the constants that `warplens.cuda.calibrate()` measured just before.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from gpu import KERNELS, Memory, Program, buffer, context, driver

import warplens as wl
import warplens.cuda as wlcu
from warplens.capture import Capture
from warplens.decode import decode

REPEATS, WARM_UP = 200, 20
WORK = {"fma": 0, "shared": 1, "l2": 2, "sleep": 3, "nested": 4}
AMOUNTS = {"fma": (16, 64, 256, 1024, 4096), "shared": (16, 64, 256, 1024), "l2": (16, 64, 256), "sleep": (1000, 10000)}


def ring(slots: int) -> Memory:
    """A pointer chase through an L2-resident ring."""
    memory = Memory(8 * slots)
    order = np.random.default_rng(7).permutation(slots)
    table = np.empty(slots, np.uint64)
    table[order] = memory.address + 8 * np.roll(order, -1).astype(np.uint64)
    driver().upload(memory.address, table.tobytes(), 0)
    return memory


class Run:
    """One warp doing `work`: raw and corrected cycles of each region, and the unmarked cycles of one repetition."""

    def __init__(self, work: str, amount: int, chase: Memory, woven: bool, each: int = 0) -> None:
        definitions = [f"-DWORK={WORK[work]}", f"-DAMOUNT={amount}", f"-DEACH={each}"]
        kernel = wlcu.compile(KERNELS / "accuracy.cu", options=definitions, woven=woven)["accuracy"]
        cycles = Memory(16)
        for _ in range(3):
            with wl.profile(records_per_warp=16 * REPEATS) as profile:
                kernel.launch(1, 32, np.uint64(cycles.address), np.uint64(chase.address), np.int32(REPEATS))
            one, two = (float(value) for value in cycles.read(np.uint64))
            self.trace = profile.trace
        self.once, self.unmarked = one / REPEATS, (two - one) / REPEATS

    def cycles(self, region: str) -> tuple[Any, Any]:
        codes, names = self.trace.codes("region")
        rows = (codes == names.index(region)) & self.trace.of_kind("span")
        return self.trace.numpy("dur_cycles")[rows][WARM_UP:], self.trace.time_shift()[rows][WARM_UP:]


def mid(values: Any) -> float:
    return round(float(np.median(values)), 2)


def lengths(chase: Memory, woven: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for work, amounts in AMOUNTS.items():
        rows = []
        runs = {amount: Run(work, amount, chase, woven) for amount in amounts}
        for amount, run in runs.items():
            raw, corrected = run.cycles("work")
            expected: Any = run.unmarked
            if work == "sleep":
                expected = run.trace.numpy("value")[run.trace.of_kind("value")][WARM_UP:]
            elif work != "l2":
                expected = amount * (runs[256].once - runs[64].once) / 192
            rows.append(
                {
                    "amount": amount, "expected": mid(expected), "raw": mid(raw), "corrected": mid(corrected),
                    "error": mid(corrected - expected), "raw p5": float(np.quantile(raw, 0.05)),
                    "raw p95": float(np.quantile(raw, 0.95)),
                }
            )  # fmt: skip
        x, y = (np.array([row[key] for row in rows]) for key in ("expected", "raw"))
        result[work] = {
            "rows": rows,
            "slope": round(float(np.polyfit(x, y, 1)[0]), 5),
            "median error": mid([abs(row["error"]) for row in rows]),
        }
    return result


def nesting(chase: Memory, woven: bool, each: int) -> dict[str, Any]:
    """Regions inside each other with `each` fmas in every one but the outermost, by depth."""
    unit = (Run("fma", 256, chase, woven).once - Run("fma", 64, chase, woven).once) / 192
    result: dict[str, Any] = {"fmas in each": each}
    for depth in (1, 2, 3, 4):
        run = Run("nested", depth, chase, woven, each)
        row = {}
        for name, inside in [("work", depth)] + [(f"level {n}", depth - n + 1) for n in range(1, depth + 1)]:
            raw, corrected = run.cycles(name)
            row[name] = {"expected": round(unit * each * inside, 1), "raw": mid(raw), "corrected": mid(corrected)}
        result[f"depth {depth}"] = row
    outermost = [result[f"depth {depth}"]["work"]["raw"] - unit * each * depth for depth in (1, 2, 3, 4)]
    result["added per level"] = round(float(np.polyfit(range(1, 5), outermost, 1)[0]), 2)
    errors = [abs(row["corrected"] - row["expected"]) for d in (1, 2, 3, 4) for row in result[f"depth {d}"].values()]
    result["errors"], result["median error"] = errors, mid(errors)
    return result


def placement(launches: int, rounds: int) -> dict[str, Any]:
    """How far apart the SMs' instants right after a barrier land, against what the trace says of its own error."""
    blocks = driver().device().sm_count
    program = Program("accuracy.cu", "barrier", "-DWORK=0", "-DAMOUNT=1", "-DEACH=0")
    arrived = Memory(4 * 33 * 32)
    spreads, residuals, pending = [], [], []
    for _ in range(launches):
        arrived.clear()
        lent = buffer("barrier", blocks, 512, 3 * rounds)
        program.launch(blocks, 512, np.uint64(arrived.address), np.int32(rounds), np.uint64(lent.address))
        driver().synchronize()
        pending.append(lent.collect())
        trace = decode(Capture([pending[-1]], device=driver().device()))
        rows = trace.of_kind("instant")
        start, sm, track = (trace.numpy(name)[rows] for name in ("start_ns", "sm", "track"))
        order = np.lexsort((start, track))
        start, sm = start[order].reshape(-1, rounds), sm[order].reshape(-1, rounds)[:, 0]
        first = np.array([start[sm == number].min(axis=0) for number in np.unique(sm)])
        spreads.extend((first.max(axis=0) - first.min(axis=0)).tolist())
        clock = trace.meta.clock
        residuals.append([clock.residual_p50_ns, clock.residual_p99_ns, clock.residual_max_ns])
    per_launch = np.array(spreads).reshape(launches, rounds)
    stated = np.array(residuals)
    joint = decode(Capture(pending, device=driver().device())).meta.clock
    return {
        "launches": launches,
        "rounds": rounds,
        "spread_ns": {
            "median": float(np.median(per_launch)),
            "p95": float(np.quantile(per_launch, 0.95)),
            "max": float(per_launch.max()),
        },
        "stated_ns": {name: mid(stated[:, i]) for i, name in enumerate(("p50", "p99", "max"))},
        # Two SMs, each as far off as the trace says at most, in opposite directions.
        "launches within the stated error": int((np.median(per_launch, axis=1) <= 2 * stated[:, 2]).sum()),
        "joint fit": {"method": joint.method, "residual_p99_ns": joint.residual_p99_ns, "mhz_mean": joint.mhz_mean},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the result here too")
    parser.add_argument("--direct", action="store_true", help="marks that the compiler sees")
    options = parser.parse_args()
    chase = ring(4096)
    woven = not options.direct
    calibration = wlcu.calibrate()
    result: dict[str, Any] = {
        "context": context("python benchmarks/accuracy.py" + " --direct" * options.direct),
        "calibration": vars(calibration),
        "lengths": lengths(chase, woven),
        "empty regions": nesting(chase, woven, 0),
        "nested regions": nesting(chase, woven, 64),
        "placement": placement(25, 5),
    }
    known = [abs(row["error"]) for kind in result["lengths"].values() for row in kind["rows"]]
    nested = [error for key in ("empty regions", "nested regions") for error in result[key]["errors"]]
    result["remaining error"] = {"known lengths": mid(known), "all": mid(known + nested), "largest": max(known)}
    place = result["placement"]
    result["bars"] = {
        **{f"slope of {work} within 0.5 %": abs(row["slope"] - 1) <= 0.005 for work, row in result["lengths"].items()},
        "remaining error at most 2 cycles at the median": result["remaining error"]["all"] <= 2,
        "of known lengths alone": result["remaining error"]["known lengths"] <= 2,
        "remaining error of nested regions at most 2 cycles at the median": result["nested regions"]["median error"]
        <= 2,
        "placement within 150 ns, median round": place["spread_ns"]["median"] <= 150,
        "placement within 150 ns, every round": place["spread_ns"]["max"] <= 150,
        "placement within the stated error bar": place["launches within the stated error"] == place["launches"],
    }
    text = json.dumps(result, indent=1)
    if options.json:
        with open(options.json, "w") as out:
            out.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
