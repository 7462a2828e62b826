"""How right the numbers are on this GPU: regions of known length, empty and nested ones, and placement across SMs.

    python benchmarks/accuracy.py [--json FILE]

Expected cycles come from the same work timed without marks in the same kernel. `constant` is what an empty region
measures here; it is subtracted from `raw` to give `corrected`, never assumed.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import numpy as np
from gpu import Memory, Program, buffer, context, driver

from warplens.capture import Capture
from warplens.decode import decode

REPEATS = 200
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


def run(work: str, amount: int, chase: Memory) -> tuple[Any, float]:
    """The trace of one warp doing `work`, and the unmarked cycles per repetition."""
    program = Program("accuracy.cu", "accuracy", f"-DWORK={WORK[work]}", f"-DAMOUNT={amount}")
    cycles = Memory(8)
    unmarked = []
    for _ in range(3):
        lent = buffer("accuracy", 1, 32, 16 * REPEATS)
        program.launch(
            1, 32, np.uint64(cycles.address), np.uint64(chase.address), np.int32(REPEATS), np.uint64(lent.address)
        )
        unmarked.append(float(cycles.read(np.uint64)[0]) / REPEATS)
        trace = decode(Capture([lent.collect()], device=driver().device()))
    return trace, unmarked[-1]


def durations(trace: Any, region: str) -> np.ndarray[Any, Any]:
    codes, names = trace.codes("region")
    kinds = trace.of_kind("span")
    return trace.numpy("dur_cycles")[(codes == names.index(region)) & kinds][20:]


def lengths(chase: Memory, constant: float) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for work, amounts in AMOUNTS.items():
        rows = []
        for amount in amounts:
            trace, unmarked = run(work, amount, chase)
            measured = durations(trace, "work")
            if work == "sleep":
                inside = trace.numpy("value")[trace.of_kind("value")][20:]
                error = measured - constant - inside
                rows.append({"amount": amount, "expected": float(np.median(inside)), "raw": float(np.median(measured)),
                             "error after correction": float(np.median(error))})  # fmt: skip
                continue
            rows.append({"amount": amount, "expected": unmarked, "raw": float(np.median(measured)),
                         "spread": [float(q) for q in np.quantile(measured, (0.05, 0.95))]})  # fmt: skip
        result[work] = {"rows": rows}
        if work != "sleep":
            x, y = (np.array([row[key] for row in rows]) for key in ("expected", "raw"))
            # Loop overhead is in `expected` and the marks' constant in `raw`: both drop out of the slope.
            slope, offset = np.polyfit(x, y, 1)
            per_unit = np.polyfit([row["amount"] for row in rows], y, 1)
            result[work] |= {"slope": float(slope), "offset": float(offset), "cycles per unit": float(per_unit[0])}
            ideal = per_unit[0] * np.array([row["amount"] for row in rows])
            result[work]["error after correction"] = [float(v) for v in y - constant - ideal]
    return result


def nesting(chase: Memory) -> dict[str, Any]:
    """Empty regions: what one measures, and what each further level adds to the outermost."""
    outer = {}
    for depth in (1, 2, 3, 4):
        trace, _ = run("nested", depth, chase)
        outer[depth] = {
            f"level {level}": float(np.median(durations(trace, f"level {level}"))) for level in range(1, depth + 1)
        }
        outer[depth]["work"] = float(np.median(durations(trace, "work")))
    innermost = [outer[depth][f"level {depth}"] for depth in outer]
    works = [outer[depth]["work"] for depth in outer]
    return {
        "by depth": outer,
        "constant": float(np.median(innermost)),
        "per level": float(np.polyfit(range(1, 5), works, 1)[0]),
    }


def placement(launches: int, rounds: int) -> dict[str, Any]:
    """How far apart the SMs' instants right after a barrier land, against what the trace says of its own error."""
    blocks = driver().device().sm_count
    program = Program("accuracy.cu", "barrier", "-DWORK=0", "-DAMOUNT=1")
    arrived = Memory(4)
    spreads, residuals, pending = [], [], []
    for _ in range(launches):
        arrived.clear()
        lent = buffer("barrier", blocks, 256, 3 * rounds)
        program.launch(blocks, 256, np.uint64(arrived.address), np.int32(rounds), np.uint64(lent.address))
        driver().synchronize()
        pending.append(lent.collect())
        trace = decode(Capture([pending[-1]], device=driver().device()))
        rows = trace.of_kind("instant")
        start, sm, track = (trace.numpy(name)[rows] for name in ("start_ns", "sm", "track"))
        order = np.lexsort((start, track))
        start, sm = start[order].reshape(-1, rounds), sm[order].reshape(-1, rounds)[:, 0]
        first = np.array([start[sm == number].min(axis=0) for number in np.unique(sm)])
        spreads.extend((first.max(axis=0) - first.min(axis=0)).tolist())
        residuals.append([trace.meta.clock.residual_p99_ns, trace.meta.clock.residual_max_ns])
    joint = decode(Capture(pending, device=driver().device())).meta.clock
    return {
        "launches": launches,
        "rounds": rounds,
        "spread_ns": {
            "median": float(np.median(spreads)),
            "p95": float(np.quantile(spreads, 0.95)),
            "max": max(spreads),
        },
        "residual_p99_ns": float(np.median([r[0] for r in residuals])),
        "residual_max_ns": float(np.max([r[1] for r in residuals])),
        "joint fit": {"method": joint.method, "residual_p99_ns": joint.residual_p99_ns, "mhz_mean": joint.mhz_mean},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", help="write the result here too")
    options = parser.parse_args()
    chase = ring(4096)
    nested = nesting(chase)
    result = {
        "context": context("python benchmarks/accuracy.py"),
        "nesting": nested,
        "lengths": lengths(chase, nested["constant"]),
        "placement": placement(25, 5),
    }
    lengths_ok = {work: row for work, row in result["lengths"].items() if "slope" in row}
    worst = max(abs(np.median(row["error after correction"])) for row in lengths_ok.values())
    result["bars"] = {
        **{f"slope of {work} within 0.5 %": abs(row["slope"] - 1) <= 0.005 for work, row in lengths_ok.items()},
        "error after correction at most 2 cycles at the median": bool(worst <= 2),
        "placement within 150 ns": result["placement"]["spread_ns"]["max"] <= 150,
    }
    text = json.dumps(result, indent=1)
    if options.json:
        with open(options.json, "w") as out:
            out.write(text + "\n")
    print(text)


if __name__ == "__main__":
    main()
