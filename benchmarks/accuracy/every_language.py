"""Regions of known length in every language, alone on the GPU and with all SMs full of them.

Each instance knows its own length: two clock reads right inside the region, and what the reads take themselves, which
the same work without marks says in the same launch. `error` is the duration after the correction less that.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

import warplens as wl
import warplens.cuda as wlcu
from benchmarks.accuracy.snippets import AMOUNTS, as_macro, texts
from benchmarks.lib.gpu_programs import KERNELS, Memory, driver
from warplens.calibrate.record_cost import constants
from warplens.frontends.cuda.measured_cost import calibrations
from warplens.launch.direct import DIRECT
from warplens.record.cost_keys import REGION_CYCLES
from warplens.trace.model import Trace

ALONE, LOADED = "alone", "all SMs busy"
REPEATS = {ALONE: 120, LOADED: 60}
WARM_UP, PER_SM, BYTES = 10, 16, 1 << 16
BAR_CYCLES, BAR_SHARE = 1.0, 0.005

Launch = Callable[[str, int, int, int, int], tuple[Trace, np.ndarray[Any, Any]]]
"""Take a work, its amount, where it reads, the number of blocks of one warp, and how often each repeats it; return the
trace and the cycles that the reads take."""


class Rings:
    """Memory to read: rings of pointers, which stay in L2, and bytes to copy."""

    def __init__(self) -> None:
        self._order = np.random.default_rng(7).permutation(BYTES // 8)
        self._memory = Memory(BYTES)

    def start(self, work: str, amount: int) -> int:
        """Return where the work begins to read; for a chase, in a ring of as many slots as it has steps."""
        base = int(self._memory.address)
        if work != "l2":
            return base
        table, order = np.zeros(BYTES // 8, np.uint64), self._order[:amount]
        table[order] = base + 8 * np.roll(order, -1).astype(np.uint64)
        driver().upload(base, table.tobytes(), 0)
        return base + 8 * int(order[0])


def source(work: str, amount: int) -> str:
    macros = "".join(as_macro(name, text) for name, text in texts(work, amount).items())
    return macros + (KERNELS / "known_work.cu").read_text()


def cuda(woven: bool) -> Launch:
    @functools.cache
    def compiled(work: str, amount: int) -> wlcu.Kernel:
        return wlcu.compile(source(work, amount), woven=woven)["known_work"]

    def launch(work: str, amount: int, at: int, blocks: int, repeats: int) -> tuple[Trace, np.ndarray[Any, Any]]:
        kernel, extra = compiled(work, amount), Memory(8 * blocks * repeats)
        for _ in range(2):
            with wl.profile(records_per_warp=4 * repeats) as profile:
                kernel.launch(blocks, 32, np.uint64(extra.address), np.uint64(at), np.int32(repeats))
        return profile.trace, extra.read(np.int64)

    return launch


def triton(gluon: bool) -> Launch:
    import torch

    from benchmarks.accuracy import triton_work

    kernel = triton_work.known_work_gluon if gluon else triton_work.known_work

    def launch(work: str, amount: int, at: int, blocks: int, repeats: int) -> tuple[Trace, np.ndarray[Any, Any]]:
        extra = torch.zeros(blocks * repeats, dtype=torch.int64, device="cuda")
        for _ in range(2):
            with wl.profile(records_per_warp=4 * repeats) as profile:
                kernel[(blocks,)](extra, at, repeats, **texts(work, amount), num_warps=1)
        return calibrated(profile.trace, constants()), extra.cpu().numpy()

    return launch


def cute(woven: bool) -> Launch:
    import torch
    from cutlass import cute as dsl
    from cutlass.cute.runtime import from_dlpack

    import warplens.cute as wlc
    from benchmarks.accuracy import cute_work

    def launch(work: str, amount: int, at: int, blocks: int, repeats: int) -> tuple[Trace, np.ndarray[Any, Any]]:
        extra = torch.zeros(blocks * repeats, dtype=torch.int64, device="cuda")
        buffer, given = None if woven else wlc.buffer(), (from_dlpack(extra), at, blocks, repeats)
        compiled = dsl.compile(cute_work.run, *given, texts(work, amount), buffer)
        for _ in range(2):
            with wl.profile(records_per_warp=4 * repeats) as profile:
                compiled(*given, buffer)
        cost = constants() if woven else calibrations.get((driver().device().name, DIRECT, "stop"), {})
        return calibrated(profile.trace, cost), extra.cpu().numpy()

    return launch


LANGUAGES: Mapping[str, Callable[[], Launch]] = {
    "CUDA woven": lambda: cuda(True),
    "CUDA direct": lambda: cuda(False),
    "Triton": lambda: triton(False),
    "Gluon": lambda: triton(True),
    "CuTe woven": lambda: cute(True),
    "CuTe direct": lambda: cute(False),
}


def calibrated(trace: Trace, cost: Mapping[str, float]) -> Trace:
    """Give launches without constants those that were measured for their form of marks on this GPU."""
    launches = [
        info if REGION_CYCLES in info.cost else replace(info, cost={**info.cost, **cost})
        for info in trace.meta.launches
    ]
    trace.meta = replace(trace.meta, launches=launches)
    return trace


def errors(trace: Trace, extra: np.ndarray[Any, Any], repeats: int) -> dict[str, Any]:
    """Compare each instance's duration with what its own clock reads said."""
    codes, names = trace.codes("region")
    spans = np.flatnonzero(trace.of_kind("span") & (codes == names.index("work")))
    values = np.flatnonzero(trace.of_kind("value"))
    if len(spans) != len(values) or len(spans) % repeats:
        raise ValueError(f"{len(spans)} regions and {len(values)} values of {repeats} repetitions each")
    late = np.arange(len(spans)) % repeats >= WARM_UP
    plain = extra.reshape(-1, repeats)[:, WARM_UP:]
    reads = float(np.median(plain))
    expected = (trace.numpy("value")[values] + reads)[late]
    raw, corrected = (given[spans][late] for given in (trace.numpy("dur_cycles"), trace.time_shift()))
    wrong = corrected - expected
    typical = float(np.median(expected))
    bar = max(BAR_CYCLES, BAR_SHARE * typical)
    return {
        "instances": len(wrong), "expected": typical, "reads": reads, "bar": round(bar, 2),
        "reads differ": round(float(np.median(np.abs(plain - reads))), 2),
        "raw error": round(float(np.median(raw - expected)), 2), "error": round(float(np.median(wrong)), 2),
        "median |error|": round(float(np.median(np.abs(wrong))), 2),
        "p99 |error|": round(float(np.quantile(np.abs(wrong), 0.99)), 2),
        "worst |error|": round(float(np.abs(wrong).max()), 2),
        "met": bool(np.median(np.abs(wrong)) <= bar),
    }  # fmt: skip


def measure(languages: Mapping[str, Callable[[], Launch]], say: Callable[[str], None]) -> dict[str, Any]:
    """Every language, work, amount and load; one that fails is noted and the others go on."""
    rings, blocks = Rings(), {ALONE: 1, LOADED: PER_SM * driver().device().sm_count}
    found: dict[str, Any] = {}
    for language, prepare in languages.items():
        rows: list[dict[str, Any]] = []
        cost: dict[str, float] = {}
        try:
            launch = prepare()
        except Exception as error:
            found[language] = {"failed": f"{type(error).__name__}: {error}"[:300]}
            continue
        for work, amounts in AMOUNTS.items():
            for amount in amounts:
                for load, count in blocks.items():
                    row: dict[str, Any] = {"work": work, "amount": amount, "load": load}
                    try:
                        traced = launch(work, amount, rings.start(work, amount), count, REPEATS[load])
                        cost = {key: each for key, each in traced[0].meta.launches[0].cost.items() if "_cycles" in key}
                        row |= errors(*traced, REPEATS[load])
                    except Exception as error:
                        row["failed"] = f"{type(error).__name__}: {error}"[:300]
                    rows.append(row)
        say(f"{language}: {sum(row.get('met', False) for row in rows)} of {len(rows)} within the bar; {cost}")
        found[language] = {"rows": rows, "cost": cost}
    return found
