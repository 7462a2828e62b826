"""The critical path of a job: which rank each collective waited for, and what that rank did meanwhile.

The path runs back from the last collective: to the rank that entered it last, along that rank to its collective before,
through that to the rank that entered it last, and so on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from warplens.analyse.analysis import Analysis, Answers, AnswerTable
from warplens.analyse.collective_entries import ONE_RANK, JobCollectives, RankWindow
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.rank_lateness import JOB
from warplens.wording import duration, percent

_MAX_STEPS = 2000
_MAX_KERNELS = 3


@dataclass(frozen=True)
class RankStep:
    """A part of the path on one rank, up to its entry into a collective. `certain` says that the rank was last by more
    than the clocks' bound."""

    rank: int
    begin_ns: int
    end_ns: int
    collective: str
    number: int
    certain: bool


@dataclass(frozen=True)
class RankPath:
    """The path in ns: of each rank, of its kernels, and inside collectives. `uncertain` is the share of the ranks' time
    that another rank may have in truth."""

    total_ns: int
    collectives_ns: int
    ranks: Mapping[int, int]
    kernels: Mapping[int, Mapping[str, int]]
    uncertain: float
    steps: tuple[RankStep, ...]


def rank_path(job: JobCollectives) -> RankPath | None:
    """The critical path of the ranks of a trace; None if there are no two collectives of several ranks."""
    into = {(window.rank, id(window.after)): window for some in job.windows.values() for window in some}
    if not into or not job.all:
        return None
    steps: list[tuple[RankWindow, bool]] = []
    at, within = job.all[-1], 0
    end = at.entered[at.last]
    seen: set[int] = set()  # ranks may enter collectives of several groups in different orders
    while id(at) not in seen and (window := into.get((at.last, id(at)))) is not None and window.begin_ns < end:
        seen.add(id(at))
        last = at.last
        next_to_last = max((rank for rank in at.entered if rank != last), key=lambda rank: at.entered[rank])
        ahead = at.entered[last] - at.entered[next_to_last]
        steps.append((window, ahead > job.clocks.bound_ns(last, next_to_last)))
        before = window.before
        end = before.entered[before.last]
        within += max(window.begin_ns - end, 0)
        at = before
    if not steps:
        return None
    ranks: dict[int, int] = {}
    kernels: dict[int, dict[str, int]] = {}
    for window, _ in steps:
        ranks[window.rank] = ranks.get(window.rank, 0) + window.ns
        mine = kernels.setdefault(window.rank, {})
        for kernel, ns in job.kernel_times(window).items():
            mine[kernel] = mine.get(kernel, 0) + ns
    spent = sum(ranks.values()) or 1
    shown = [
        RankStep(window.rank, window.begin_ns, window.end_ns, window.after.name, window.after.number, certain)
        for window, certain in reversed(steps[:_MAX_STEPS])
    ]
    return RankPath(
        spent + within,
        within,
        dict(sorted(ranks.items(), key=lambda one: -one[1])),
        kernels,
        sum(window.ns for window, certain in steps if not certain) / spent,
        tuple(shown),
    )


def path_table(name: str, one: RankPath) -> AnswerTable:
    """One row per rank on the path, and one for the collectives."""
    rows = []
    for rank, ns in one.ranks.items():
        known = sorted(one.kernels[rank].items(), key=lambda kernel: -kernel[1])
        rest = ns - sum(spent for _, spent in known)
        parts = [f"{kernel} {percent(spent / one.total_ns)}" for kernel, spent in known[:_MAX_KERNELS]]
        parts += [f"elsewhere {percent(rest / one.total_ns)}"] if rest > 0 else []
        rows.append((f"rank {rank}", percent(ns / one.total_ns), ", ".join(parts)))
    rows.append(("in collectives", percent(one.collectives_ns / one.total_ns), ""))
    title = f"{name}: critical path, {duration(one.total_ns)}; {percent(one.uncertain)} within the clock bound"
    return AnswerTable(title, ("rank", "share", "of which"), tuple(rows))


def _run(ask: Answers) -> PerKernel[RankPath]:
    found = rank_path(ask.job)
    return PerKernel({} if found is None else {JOB: found})


RANK_PATH = Analysis("rank-path", run=_run, table=path_table, without=ONE_RANK)
