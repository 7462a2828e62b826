"""Kernels of seconds: the clock changes in the middle, a region outlasts 2^32 cycles, and one kernel runs for a minute.

Each step of kernels/long_run.cu records an anchor and the global timer as a value, so the trace's placement of that
record can be compared with it; the timer moves in steps of 32 ns. The region around all steps knows its cycles from the
64-bit clock.

The clock is changed by load: while the kernel runs, with one warp on each of half the SMs, matrix products on another
stream start and stop, and power management answers. Locking the clocks changes a setting of the GPU that others may
share, so it only happens where it is asked for (`--lock-clocks`).
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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


EVERY = 0.4
"""Seconds after which the load, or the locked clock, changes."""


@contextlib.contextmanager
def in_turn(change: Callable[[int], None], every: float = EVERY) -> Iterator[list[str]]:
    """Call `change` with 0, 1, 2, ... from a thread, `every` seconds apart, until the end; gives what went wrong."""
    end, problems = threading.Event(), list[str]()

    def run() -> None:
        turn = 0
        try:
            while not end.is_set():
                begun = time.monotonic()
                change(turn)
                turn += 1
                end.wait(every - (time.monotonic() - begun))
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}"[:200])

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield problems
    finally:
        end.set()
        thread.join()


class Products:
    """Matrix products on a stream of their own, in every other turn: not in the first, in which the kernel starts."""

    def __init__(self, size: int = 8192, at_once: int = 16, every: float = EVERY) -> None:
        import torch

        self._torch, self._at_once, self._every = torch, at_once, every
        self._stream = torch.cuda.Stream()
        with torch.cuda.stream(self._stream):
            self._left, self._right, self._out = (
                torch.randn(size, size, device="cuda", dtype=torch.float16) for _ in range(3)
            )
            torch.mm(self._left, self._right, out=self._out)
        self._stream.synchronize()
        self.done = 0

    def __call__(self, turn: int) -> None:
        end = time.monotonic() + self._every
        # A few at a time: the kernel that is measured ends when it does, with no queue of products behind it.
        while turn % 2 and time.monotonic() < end:
            with self._torch.cuda.stream(self._stream):
                for _ in range(self._at_once):
                    self._torch.mm(self._left, self._right, out=self._out)
            self._stream.synchronize()
            self.done += self._at_once


def lock_clocks(turn: int, megahertz: Sequence[int] = (1200, 1900)) -> None:
    """Lock the SM clock to a low and a high frequency in turn, where that is allowed."""
    mhz = megahertz[turn % len(megahertz)]
    _nvidia_smi(f"--lock-gpu-clocks={mhz},{mhz}")


def _nvidia_smi(option: str) -> None:
    done = subprocess.run(["nvidia-smi", option], capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise RuntimeError((done.stdout + done.stderr).strip())


@contextlib.contextmanager
def changing_clock(lock: bool) -> Iterator[dict[str, str]]:
    """Change the SM clock while the kernel runs; gives how, once it is over."""
    how: dict[str, str] = {}
    if lock:
        try:
            with in_turn(lock_clocks) as problems:
                yield how
        finally:
            with contextlib.suppress(OSError, RuntimeError, subprocess.TimeoutExpired):
                _nvidia_smi("--reset-gpu-clocks")
        how["clock"] = problems[0] if problems else f"locked to 1200 and 1900 MHz in turn, every {EVERY:g} s"
        return
    try:
        products = Products()
    except Exception as error:  # without torch or the memory, the kernel's own load is all there is
        how["clock"] = f"no load: {type(error).__name__}: {error}"[:200]
        yield how
        return
    with in_turn(products) as problems:
        yield how
    how["clock"] = problems[0] if problems else f"{products.done:,} matrix products, every other {EVERY:g} s"


def measure(
    runs: Mapping[str, LongRun], say: Callable[[str], None], found: dict[str, Any] | None = None, lock: bool = False
) -> dict[str, Any]:
    """Run each; `found` has those that are done as soon as `say` is told of them."""
    found = {} if found is None else found
    for name, run in runs.items():
        try:
            found[name] = once(run, lock)
        except Exception as error:
            found[name] = {"failed": f"{type(error).__name__}: {error}"[:300]}
        say(f"{name}: {found[name]}")
    return found


def once(run: LongRun, lock: bool = False) -> dict[str, Any]:
    kernel = wlcu.compile(KERNELS / "long_run.cu", options=[f"-DANCHORS={int(run.anchors)}"], woven=run.woven)[
        "long_run"
    ]
    # Products may need all registers of an SM: half of them are theirs.
    sms = driver().device().sm_count
    blocks, out = sms // 2 if run.toggles and not lock else sms, Memory(16)
    arguments = [np.uint64(int(1e9 * part)) for part in (run.seconds, run.step, run.alternate)]
    clock = {"clock": run.clock} if run.clock != "32" else {}
    begin = time.perf_counter()
    with (
        changing_clock(lock) if run.toggles else contextlib.nullcontext({}) as how,
        wl.profile(records_per_warp=8 * run.steps + 64, launches=1, **clock) as profile,
    ):
        kernel.launch(blocks, 32, np.uint64(out.address), *arguments)
        driver().synchronize()
    found = {"seconds": round(time.perf_counter() - begin, 1), **judged(profile.trace), **how}
    cycles = np.array(found["cycles of a step, least and most"])
    return found | {"MHz, least and most": [round(float(rate)) for rate in cycles / run.step / 1e6]}


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
