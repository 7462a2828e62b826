"""Kernels of seconds: the clock changes in the middle, a region outlasts 2^32 cycles, and one kernel runs for a minute.

Each step of kernels/long_run.cu records an anchor and the global timer as a value, so the trace's placement of that
record can be compared with it; the timer moves in steps of 32 ns. The region around all steps knows its cycles from the
64-bit clock.
"""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import warplens as wl
import warplens.cuda as wlcu
from benchmarks.lib.gpu_programs import KERNELS, Memory, driver
from warplens.trace.model import Trace

BAR_NS, BAR_WITHIN = 32.0, 0.99
WRAP = 1 << 32


@dataclass(frozen=True)
class LongRun:
    """How long a kernel runs and its steps are, in seconds; `alternate` is how long it is busy before it is idle."""

    seconds: float
    step: float
    alternate: float
    clock: str = "32"
    woven: bool = True
    toggles: bool = False
    anchors: bool = True

    @property
    def steps(self) -> int:
        return int(self.seconds / self.step)


RUNS = {
    "clock changes": LongRun(3.0, 0.001, 0.25, toggles=True),
    "clock changes, direct marks": LongRun(3.0, 0.001, 0.25, woven=False, toggles=True),
    "clock changes, no anchors": LongRun(3.0, 0.001, 0.25, toggles=True, anchors=False),
    "a region of more than 2^32 cycles, 32-bit clocks": LongRun(4.0, 0.01, 0.5),
    "a region of more than 2^32 cycles, 64-bit clocks": LongRun(4.0, 0.01, 0.5, clock="64"),
}
MINUTE = {"a minute": LongRun(60.0, 0.05, 5.0)}


class ClockToggle:
    """Locks the SM clock to a low and a high frequency in turn while a kernel runs, where that is allowed."""

    def __init__(self, megahertz: Sequence[int] = (1200, 1900), every: float = 0.4) -> None:
        self.problem = ""
        self._megahertz, self._every, self._end = megahertz, every, threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ClockToggle:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._end.set()
        self._thread.join()
        self._ask("--reset-gpu-clocks")

    def _run(self) -> None:
        turn = 0
        while not self._end.wait(self._every) and not self.problem:
            mhz = self._megahertz[turn % len(self._megahertz)]
            self._ask(f"--lock-gpu-clocks={mhz},{mhz}")
            turn += 1

    def _ask(self, option: str) -> None:
        try:
            done = subprocess.run(["nvidia-smi", option], capture_output=True, text=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired) as error:
            self.problem = str(error)
            return
        if done.returncode:
            self.problem = (done.stdout + done.stderr).strip()[:200]


def measure(runs: dict[str, LongRun], say: Callable[[str], None]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, run in runs.items():
        try:
            found[name] = once(run)
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        say(f"{name}: {found[name]}")
    return found


def once(run: LongRun) -> dict[str, Any]:
    kernel = wlcu.compile(KERNELS / "long_run.cu", options=[f"-DANCHORS={int(run.anchors)}"], woven=run.woven)[
        "long_run"
    ]
    blocks, out = driver().device().sm_count, Memory(16)
    arguments = [np.uint64(int(1e9 * part)) for part in (run.seconds, run.step, run.alternate)]
    clock = {"clock": run.clock} if run.clock != "32" else {}
    begin = time.perf_counter()
    toggle = ClockToggle() if run.toggles else None
    with wl.profile(records_per_warp=8 * run.steps + 64, launches=1, **clock) as profile:
        if toggle is None:
            kernel.launch(blocks, 32, np.uint64(out.address), *arguments)
            driver().synchronize()
        else:
            with toggle:
                kernel.launch(blocks, 32, np.uint64(out.address), *arguments)
                driver().synchronize()
    found = {"seconds": round(time.perf_counter() - begin, 1), **judged(profile.trace)}
    if toggle is not None:
        found["clocks locked"] = toggle.problem or "in turn, every 0.4 s"
    return found


def judged(trace: Trace) -> dict[str, Any]:
    """Placement against the global timer, and the whole region against the 64-bit clock."""
    codes, names = trace.codes("region")
    value, start = trace.numpy("value"), trace.numpy("start_ns").astype(np.float64)
    timer = trace.of_kind("value") & (codes == names.index("timer"))
    placed = (start - value)[timer]
    error = np.abs(placed - np.median(placed))
    clock = trace.meta.clock
    stated, most = clock.error_p99_ns, clock.error_max_ns
    whole = trace.of_kind("span") & (codes == names.index("whole"))
    cycles = trace.numpy("dur_cycles")[whole]
    known = value[trace.of_kind("value") & (codes == names.index("cycles"))]
    step = trace.numpy("dur_cycles")[trace.of_kind("span") & (codes == names.index("step"))]
    return {
        "moments": int(timer.sum()), "SMs": len(np.unique(trace.numpy("sm"))), "lost": trace.meta.losses.records_lost,
        "p50_ns": round(float(np.median(error)), 1), "p99_ns": round(float(np.quantile(error, 0.99)), 1),
        "worst_ns": round(float(error.max()), 1), "stated_p99_ns": round(float(stated), 1),
        "stated_max_ns": round(float(most), 1), "gap_ns": round(clock.gap_ns),
        "within the stated p99": round(float((error <= stated).mean()), 4),
        "within the stated max": round(float((error <= most).mean()), 4),
        "cycles of a step, least and most": [int(step.min()), int(step.max())],
        "whole_cycles": int(np.median(cycles)) if len(cycles) else 0,
        "wraps": round(float(np.median(known)) / WRAP, 2),
        "worst error of the whole, cycles": _worst(cycles, known),
    }  # fmt: skip


def _worst(cycles: np.ndarray[Any, Any], known: np.ndarray[Any, Any]) -> float | None:
    if len(cycles) != len(known) or not len(known):
        return None
    return float(np.abs(cycles - known).max())
