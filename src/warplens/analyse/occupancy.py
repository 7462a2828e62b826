"""Achieved occupancy: how many warps an SM held over time, against how many it can hold."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, fact_table
from warplens.analyse.groups import in_groups
from warplens.analyse.lifetimes import Int, Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.driver.limits import SM_LIMITS
from warplens.driver.theoretical_occupancy import MAX_REGISTERS, Occupancy, occupancy
from warplens.trace.model import Trace
from warplens.wording import percent

_BINS = 100


@dataclass(frozen=True)
class Achieved:
    """Warps alive on an SM that ran blocks, averaged over the launch, as a number and as a share of what it can hold
    (None where the compute capability is not known); `over_time` in equal steps of the launch; `theoretical` where
    the trace knows the kernel's registers and shared memory."""

    warps: float
    share: float | None
    over_time: tuple[float, ...]
    theoretical: Occupancy | None
    complete: bool = True
    """Whether the trace knows when every block ran."""


def achieved(trace: Trace) -> PerKernel[Achieved]:
    """Warps alive over time on the SMs that each kernel used."""
    lives = Lifetimes.of(trace)
    lane, answers = lives.per_track("lane"), {}
    first = np.flatnonzero(lane == lane.min(initial=0))  # a warp with several recorded lanes counts once
    tracks = [first[at] for at in in_groups(lives.launch[first], len(lives.launches))]
    for kernel, launches in lives.variants.items():
        curves = [_curve(lives, at, tracks[at]) for at in launches.tolist()]
        warps = float(np.mean([curve.mean() for curve in curves]))
        most, theoretical = _known(lives, int(launches[0]))
        answers[kernel] = Achieved(
            warps=warps,
            share=warps / most if most else None,
            over_time=tuple(np.mean(curves, axis=0).tolist()),
            theoretical=theoretical,
            complete=all(lives.launches[at].complete for at in launches.tolist()),
        )
    return PerKernel(answers)


def _curve(lives: Lifetimes, at: int, mine: Int) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Mean warps per used SM in equal steps of a launch, from one track of each of its warps."""
    launch = lives.launches[at]
    edges = np.linspace(0, launch.duration_ns, _BINS + 1)

    def until(times: np.ndarray[tuple[int], np.dtype[np.int64]]) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        ordered = np.sort(times - launch.begin_ns)
        total = np.append(0, np.cumsum(ordered))
        passed = np.searchsorted(ordered, edges)
        return np.asarray(passed * edges - total[passed], np.float64)

    step = launch.duration_ns / _BINS
    if not launch.recorded and launch.complete:
        # Of the other blocks only the lifetimes are known: they hold as many warps as the recorded ones did.
        blocks, of = lives.all_blocks_of(at), lives.blocks_of(at)
        lived = float((lives.finish_ns[mine] - lives.begin_ns[mine]).sum())
        warps = lived / max(float((lives.blocks.end_ns[of] - lives.blocks.begin_ns[of]).sum()), 1.0)
        used = max(len(np.unique(blocks.sm)), 1)
        return np.asarray(warps * np.diff(until(blocks.begin) - until(blocks.end)) / step / used)
    used = max(len(np.unique(lives.sm[mine])), 1)
    # Warps live longer than their first and last records show.
    shown = float((lives.finish[mine] - lives.begin[mine]).sum())
    longer = max(launch.info.busy_cycles / max(shown, 1.0), 1.0) if launch.info else 1.0
    return np.asarray(longer * np.diff(until(lives.begin_ns[mine]) - until(lives.finish_ns[mine])) / step / used)


def _known(lives: Lifetimes, at: int) -> tuple[int, Occupancy | None]:
    """The warps that an SM of the device holds, and the theoretical occupancy where the launch says what it needs."""
    info = lives.launches[at].info
    device = lives.trace.meta.device(info.rank, info.device) if info else {}
    capability = str(device.get("capability", ""))
    if capability not in SM_LIMITS:
        return 0, None
    most = SM_LIMITS[capability].warps
    extra = info.extra if info else {}
    if info is None or "registers" not in extra:
        return most, None
    threads = info.block[0] * info.block[1] * info.block[2]
    shared = int(extra.get("shared_bytes_kernel", extra.get("shared_bytes", 0)))
    return most, occupancy(threads, min(int(extra["registers"]), MAX_REGISTERS), shared, capability)


def occupancy_table(kernel: str, one: Achieved) -> AnswerTable:
    """Achieved and theoretical occupancy, and what limits it."""
    share = f" ({percent(one.share)} of the slots)" if one.share else ""
    facts = [("warps alive per SM", f"{one.warps:.1f}{share}")]
    if one.theoretical:
        limit = one.theoretical
        possible = f"{limit.warps} ({percent(limit.share)}), limited by {' and '.join(limit.limiters)}"
        facts += [("possible", possible), ("to raise the limit", limit.lift)]
    return fact_table(f"{kernel}: occupancy", facts)


OCCUPANCY = Analysis("occupancy", run=lambda ask: achieved(ask.trace), table=occupancy_table)
