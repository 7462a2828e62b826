"""Ramp-up and ramp-down: the time from the launch to the first useful work, and around it in each block."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, fact_table
from warplens.analyse.groups import reduce_by, unique_rows
from warplens.analyse.intervals import length, union
from warplens.analyse.kernel_lives import each_variant
from warplens.analyse.lifetimes import Int, Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.region_purpose import Purpose
from warplens.trace.model import Trace
from warplens.wording import duration, percent

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True)
class Ramp:
    """Means over a kernel's launches. `useful` are the regions that work, or else all that do not wait.

    `to_first_ns` is the time from the launch to the first useful region, averaged over SMs. `prologue` and `epilogue`
    are the shares of the blocks' time before their first and after their last useful region. `exposed` is the share of
    SM time in which blocks were resident but none was between its first and last useful region. `unmarked` is the
    share of the warps' lifetime before their first and after their last record.
    """

    useful: tuple[str, ...]
    to_first_ns: float
    to_first: float
    prologue: float
    epilogue: float
    prologue_ns: float
    epilogue_ns: float
    exposed: float
    unmarked: float


def ramp(trace: Trace, *, waits: str | None = None) -> PerKernel[Ramp]:
    """Measure the ramp of every kernel."""
    lives = Lifetimes.of(trace)
    kinds = lives.purposes(waits)
    answers = {}
    for label, own in each_variant(lives):
        answers[label] = _of_variant(own, label, _useful(own, kinds))
    return PerKernel(answers)


def _useful(lives: Lifetimes, kinds: list[Purpose]) -> list[int]:
    used = np.unique(lives.cells.region).tolist()
    for wanted in ({Purpose.WORK}, {Purpose.OTHER, Purpose.MEMORY}, {Purpose.WAIT}):
        found = [code for code in used if kinds[code] in wanted]
        if found:
            return found
    return []


def _of_variant(lives: Lifetimes, label: str, useful: list[int]) -> Ramp:
    blocks = lives.blocks
    first, last = _worked(lives, useful)
    worked = first < _NEVER
    to_first, shares = [], []
    for at in range(len(lives.launches)):
        of = lives.blocks_of(at)
        here = np.flatnonzero(worked[of]) + of.start
        if not len(here):
            continue
        launch = lives.launches[at]
        (sms,), _, place = unique_rows(blocks.sm[here])
        to_first.append((reduce_by(np.minimum, first[here], place, len(sms)) - launch.begin_ns).mean())
        axis = place * (launch.duration_ns + 1) - launch.begin_ns
        resident = length(*union(axis + blocks.begin_ns[here], axis + blocks.end_ns[here]))
        main = length(*union(axis + first[here], axis + last[here]))
        shares.append((resident - main) / (launch.duration_ns * len(sms)))
    lasted = max(float((blocks.end_ns - blocks.begin_ns)[worked].sum()), 1.0)
    before, after = (first - blocks.begin_ns)[worked], (blocks.end_ns - last)[worked]
    return Ramp(
        useful=tuple(lives.regions[code] for code in useful),
        to_first_ns=float(np.mean(to_first)) if to_first else 0.0,
        to_first=float(np.mean(to_first) / lives.kernel_ns(label)) if to_first else 0.0,
        prologue=float(before.sum() / lasted),
        epilogue=float(after.sum() / lasted),
        prologue_ns=float(before.mean()) if len(before) else 0.0,
        epilogue_ns=float(after.mean()) if len(after) else 0.0,
        exposed=float(np.mean(shares)) if shares else 0.0,
        unmarked=_unmarked(lives),
    )


def _worked(lives: Lifetimes, useful: list[int]) -> tuple[Int, Int]:
    """When each block began and ended its useful regions; `_NEVER` and -1 for blocks without one."""
    first = np.full(len(lives.blocks), _NEVER)
    last = np.full(len(lives.blocks), -1, np.int64)
    cells = lives.cells
    here = np.isin(cells.region, useful)
    block = lives.block[cells.track[here]]
    np.minimum.at(first, block, cells.first_ns[here])
    np.maximum.at(last, block, cells.last_ns[here])
    return first, last


def _unmarked(lives: Lifetimes) -> float:
    """The share of the warps' lifetime before the first and after the last record; 0 where lifetimes are unknown."""
    infos = [launch.info for launch in lives.launches]
    alive = sum(info.busy_ns for info in infos if info)
    seen = float((lives.finish_ns - lives.begin_ns).sum())
    return max(1 - seen / alive, 0.0) if alive and all(infos) else 0.0


def ramp_table(kernel: str, one: Ramp) -> AnswerTable:
    """The time before and after the useful regions of a launch and of its blocks."""
    return fact_table(
        f"{kernel}: ramp",
        [
            ("useful regions", ", ".join(one.useful[:6])),
            ("launch to the first of these", f"{duration(one.to_first_ns)} ({percent(one.to_first)})"),
            ("prologue of a block", f"{duration(one.prologue_ns)} ({percent(one.prologue)})"),
            ("epilogue of a block", f"{duration(one.epilogue_ns)} ({percent(one.epilogue)})"),
            ("SM time in prologues and epilogues only", percent(one.exposed)),
            ("warp time before and after all marks", percent(one.unmarked)),
        ],
    )


RAMP = Analysis("ramp", run=lambda ask: ramp(ask.trace, waits=ask.waits), table=ramp_table)
