"""Chains of known length in one warp: durations against the length of the same work without marks.

Both forms of marks: woven, as `warplens.cuda.compile` does it, and direct, as the compiler sees it in other programs.
Expected is what two plain clock reads around the same work without marks say in the same kernel. A region ends when
its last instruction is issued, as those reads have it: the latency of a last result that nothing inside waits for lies
outside. A chain of loads ends with an instruction that needs the last one, which is part of the work. A sleep differs
from call to call: it is what clock reads right before and after it said, and what two more reads take with nothing
between them. `added`, raw less expected, is what the marks add (not known of a sleep, which no two calls take alike).
Corrected durations are `Trace.time_shift()` with the constants that `warplens.cuda.calibrate()` measured just before.
`short` are regions of a few fmas, down to less than what direct records wait for each other: what the correction takes
for nothing is wrong there, and no other region here would show it. They are judged apart from the rest.
`gaps` are what lies between one record and the next. Where `Run.folder` is set, the trace of every run stays, and that
of the calibration's own kernel, so that other constants can be tried on the same records.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import warplens as wl
import warplens.cuda as wlcu
from benchmarks.lib.gpu_programs import KERNELS, Memory, driver
from warplens.calibrate.cuda_marks import SOURCE
from warplens.calibrate.known_lengths import LONG, ROUNDS, SHORT, SLOTS

REPEATS, WARM_UP = 200, 20
WORK = {"fma": 0, "shared": 1, "l2": 2, "sleep": 3, "nested": 4}
FORMS = ("woven", "direct")
SHORT_AMOUNTS = (1, 2, 3, 4, 5, 6, 8, 12)
AMOUNTS = {"fma": (16, 64, 256, 1024, 4096), "shared": (16, 64, 256, 1024), "l2": (16, 64, 256), "sleep": (1000, 10000)}


class Chase:
    """Rings of pointers within a few KiB, which stay in L2; each of its own length, its slots in random order."""

    def __init__(self, slots: int = 4096) -> None:
        self._order = np.random.default_rng(7).permutation(slots)
        self._memory = Memory(8 * slots)

    def start(self, length: int) -> int:
        """Make a ring of this length and say where it begins."""
        table, order = np.zeros(len(self._order), np.uint64), self._order[:length]
        table[order] = self._memory.address + 8 * np.roll(order, -1).astype(np.uint64)
        driver().upload(self._memory.address, table.tobytes(), 0)
        return int(self._memory.address + 8 * order[0])


class Run:
    """One warp doing `work`: raw and corrected cycles of each region, what two bare clock reads around the work say,
    and its length."""

    folder: Path | None = None
    """Where the traces stay."""

    def __init__(self, work: str, amount: int, chase: Chase, woven: bool, each: int = 0) -> None:
        definitions = [f"-DWORK={WORK[work]}", f"-DAMOUNT={amount}", f"-DEACH={each}"]
        kernel = wlcu.compile(KERNELS / "accuracy.cu", options=definitions, woven=woven)["accuracy"]
        samples = Memory(16 * REPEATS)
        start = chase.start(amount) if work == "l2" else 0
        for _ in range(3):
            with wl.profile(records_per_warp=16 * REPEATS) as profile:
                kernel.launch(1, 32, np.uint64(samples.address), np.uint64(start), np.int32(REPEATS))
            self.trace = profile.trace
        self.keep(self.trace, f"{work}-{amount}-{each}", woven)
        once, twice = np.median(samples.read(np.uint64).astype(np.float64).reshape(2, -1)[:, WARM_UP:], axis=1)
        self.bare, self.length = float(once), float(twice - once)

    @classmethod
    def keep(cls, trace: wl.Trace, name: str, woven: bool) -> None:
        if cls.folder is not None:
            trace.save(cls.folder / f"{FORMS[not woven]}-{name}.warplens")

    def gaps(self) -> list[float]:
        """Cycles between the records of one repetition, in their order."""
        spans, begin = self.trace.of_kind("span"), self.trace.numpy("start_cycle")
        moments = np.sort(np.concatenate((begin, (begin + self.trace.numpy("dur_cycles"))[spans])))
        return [mid(column) for column in np.diff(moments.reshape(REPEATS, -1))[WARM_UP:].T]

    def cycles(self, region: str) -> tuple[Any, Any]:
        codes, names = self.trace.codes("region")
        rows = (codes == names.index(region)) & self.trace.of_kind("span")
        return self.trace.numpy("dur_cycles")[rows][WARM_UP:], self.trace.time_shift()[rows][WARM_UP:]


def mid(values: Any) -> float:
    return round(float(np.median(values)), 2)


def unit(short: Run, long: Run) -> float:
    """Cycles of one of a chain, from the chains of 64 and of 256."""
    return (long.length - short.length) / 192


def lengths(chase: Chase, woven: bool) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for work, amounts in AMOUNTS.items():
        rows = []
        runs = {amount: Run(work, amount, chase, woven) for amount in amounts}
        for amount, run in runs.items():
            raw, corrected = run.cycles("work")
            expected: Any = run.bare
            if work == "sleep":
                expected = run.trace.numpy("value")[run.trace.of_kind("value")][WARM_UP:] + run.bare
            rows.append(
                {
                    "amount": amount, "expected": mid(expected), "raw": mid(raw),
                    "added": None if work == "sleep" else mid(raw - run.bare),
                    "corrected": mid(corrected), "error": mid(corrected - expected),
                    "raw p5": float(np.quantile(raw, 0.05)), "raw p95": float(np.quantile(raw, 0.95)),
                }
            )  # fmt: skip
        x, y = (np.array([row[key] for row in rows]) for key in ("expected", "raw"))
        result[work] = {
            "rows": rows,
            "each": unit(runs[64], runs[256]) if work == "fma" else None,
            "slope": round(float(np.polyfit(x, y, 1)[0]), 5),
            "median error": mid([abs(row["error"]) for row in rows]),
        }
    return result


def short(chase: Chase, woven: bool) -> dict[str, Any]:
    """Regions of a few fmas."""
    rows = []
    for amount in SHORT_AMOUNTS:
        run = Run("fma", amount, chase, woven)
        raw, corrected = run.cycles("work")
        expected = run.bare
        rows.append(
            {
                "amount": amount, "expected": expected, "raw": mid(raw), "corrected": mid(corrected),
                "error": mid(corrected - expected),
            }
        )  # fmt: skip
    return {"rows": rows, "median error": mid([abs(row["error"]) for row in rows])}


def nesting(chase: Chase, woven: bool, each: int, fma: float, unfinished: float) -> dict[str, Any]:
    """Regions inside each other with `each` fmas of `fma` cycles in every one but the outermost, by depth; `unfinished`
    cycles of a chain's last fma lie outside."""
    result: dict[str, Any] = {"fmas in each": each}
    for depth in (1, 2, 3, 4):
        run = Run("nested", depth, chase, woven, each)
        row = {}
        for name, inside in [("work", depth)] + [(f"level {n}", depth - n + 1) for n in range(1, depth + 1)]:
            raw, corrected = run.cycles(name)
            row[name] = {
                "expected": round(max(fma * each * inside - unfinished, 0), 1),
                "raw": mid(raw),
                "corrected": mid(corrected),
            }
        result[f"depth {depth}"] = row
        result["gaps"] = {**result.get("gaps", {}), f"depth {depth}": run.gaps()}
    outermost = [result[f"depth {depth}"]["work"]["raw"] - fma * each * depth for depth in (1, 2, 3, 4)]
    result["added per level"] = round(float(np.polyfit(range(1, 5), outermost, 1)[0]), 2)
    errors = [abs(row["corrected"] - row["expected"]) for d in (1, 2, 3, 4) for row in result[f"depth {d}"].values()]
    result["errors"], result["median error"] = errors, mid(errors)
    return result


def regions(chase: Chase, form: str) -> dict[str, Any]:
    """How long regions seem with one form of marks, and what is left after the correction."""
    woven = form == "woven"
    result: dict[str, Any] = {"calibration": constants(chase, woven), "lengths": lengths(chase, woven)}
    fma = result["lengths"]["fma"]
    unfinished = 64 * fma["each"] - next(row["expected"] for row in fma["rows"] if row["amount"] == 64)
    for key, each in (("empty regions", 0), ("nested regions", 64)):
        result[key] = nesting(chase, woven, each, fma["each"], unfinished)
    result["short"] = short(chase, woven)
    known = [abs(row["error"]) for kind in result["lengths"].values() for row in kind["rows"]]
    nested = [error for key in ("empty regions", "nested regions") for error in result[key]["errors"]]
    result["remaining error"] = {
        "known lengths": mid(known), "all": mid(known + nested), "regions": len(known + nested), "largest": max(known)
    }  # fmt: skip
    return result


def constants(chase: Chase, woven: bool) -> dict[str, float]:
    """What the calibration says of these marks, as a launch with them carries it."""
    kernel = wlcu.compile(SOURCE, options=[f"-DSHORT={SHORT}", f"-DLONG={LONG}"], woven=woven)["calibrate"]
    out = Memory(128)
    with wl.profile(records_per_warp=2 * SLOTS * ROUNDS) as profile:
        kernel.launch(1, 32, np.uint64(out.address), np.int32(ROUNDS))
    Run.keep(profile.trace, "calibrate", woven)
    launch = Run("fma", 64, chase, woven).trace.meta.launches[0]
    return {name: cost for name, cost in launch.cost.items() if name.endswith("_cycles")}


def met(form: str, result: dict[str, Any]) -> dict[str, bool]:
    """The bars of one form of marks."""
    bars = {
        f"slope of {work} within 0.5 %": abs(row["slope"] - 1) <= 0.005 for work, row in result["lengths"].items()
    } | {
        "remaining error at most 2 cycles at the median": result["remaining error"]["all"] <= 2,
        "of known lengths alone": result["remaining error"]["known lengths"] <= 2,
        "of nested regions alone": result["nested regions"]["median error"] <= 2,
        "of regions of 1 to 12 fmas": result["short"]["median error"] <= 2,
    }
    return {f"{form}: {bar}": holds for bar, holds in bars.items()}
