"""Which rank is late into the collectives of a job, by how much, and which region of which kernel made it late.

A rank is late if it is certainly later than more ranks than are certainly later than it: by more than the bound on the
clocks of the two. It is compared with the middle one of all that it can be compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from warplens.analyse.analysis import Analysis, Answers, AnswerTable
from warplens.analyse.collective_entries import Collective, JobCollectives
from warplens.analyse.lifetimes import Float, Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.wording import duration, percent, plural

_MOST_LATE = 8
"""The ranks that entered a collective last and may be late into it."""
JOB = "all ranks"
"""The key of answers about the whole job."""
_CAUSE_SHARE = 0.5
"""The share of a rank's lateness that a kernel must explain to be its cause."""
_REGION_SHARE = 0.3
"""The same for the share of the kernel's extra time that a region must explain."""


@dataclass(frozen=True)
class LateEntry:
    """A rank that entered a collective late: `late_ns` after the rank `than`, with the bound on both ranks' clocks."""

    collective: str
    number: int
    rank: int
    than: int
    late_ns: int
    bound_ns: float


@dataclass(frozen=True)
class LatenessCause:
    """What a late rank did for longer than others between two collectives; times are medians over windows.

    `kernel` is empty if the recorded kernels do not explain it. `executions` are those of the region per warp and
    launch, on the late rank and on the others.
    """

    windows: int
    window_ns: float
    kernel: str = ""
    kernel_ns: float = 0.0
    extra_ns: float = 0.0
    region: str = ""
    region_extra_ns: float = 0.0
    executions: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class LateRank:
    """A rank that was late into `late` of `collectives` collectives; `late_ns` is the median of these."""

    rank: int
    collectives: int
    late: int
    late_ns: float
    worst_ns: float
    total_ns: float
    bound_ns: float
    cause: LatenessCause | None


@dataclass(frozen=True)
class RankLateness:
    """The late ranks, the latest in total first. `widest_ns` is the largest bound on a pair of ranks."""

    ranks: int
    collectives: int
    late_ranks: tuple[LateRank, ...]
    entries: tuple[LateEntry, ...]
    widest_ns: float


def rank_lateness(job: JobCollectives) -> RankLateness | None:
    """The lateness of the ranks of a trace; None if it has one rank only."""
    ranks = {launch.rank for launch in job.lives.launches} | set(job.clocks.ranks)
    if len(ranks) < 2:
        return None
    late: dict[int, list[tuple[Collective, LateEntry]]] = {}
    places = {rank: at for at, rank in enumerate(job.clocks.ranks)}
    bounds = job.clocks.bounds()
    for one in job.all:
        for entry in _late_entries(one, places, bounds):
            late.setdefault(entry.rank, []).append((one, entry))
    found = [_late_rank(job, rank, some) for rank, some in late.items()]
    return RankLateness(
        len(ranks),
        len(job.all),
        tuple(sorted(found, key=lambda one: -one.total_ns)),
        tuple(entry for one in sorted(late) for _, entry in late[one]),
        job.clocks.worst_ns,
    )


def _late_entries(one: Collective, places: Mapping[int, int], bounds: Float) -> Iterator[LateEntry]:
    """The ranks that were late into a collective."""
    ranks = np.array(sorted((rank for rank in one.entered if rank in places), key=lambda rank: one.entered[rank]))
    entered = np.array([one.entered[rank] for rank in ranks.tolist()])
    at = np.array([places[rank] for rank in ranks.tolist()], np.int64)
    for place in range(max(len(ranks) - _MOST_LATE, 1), len(ranks)):
        ahead, bound = entered[place] - entered, bounds[at[place], at]
        known = np.flatnonzero((np.abs(ahead) > bound) | (at == at[place]))
        middle = known[(len(known) - 1) // 2]
        if ahead[middle] > bound[middle]:
            by = int(ahead[middle]), float(bound[middle])
            yield LateEntry(one.name, one.number, int(ranks[place]), int(ranks[middle]), *by)


def _late_rank(job: JobCollectives, rank: int, late: Sequence[tuple[Collective, LateEntry]]) -> LateRank:
    times = [entry.late_ns for _, entry in late]
    return LateRank(
        rank,
        sum(rank in one.entered for one in job.all),
        len(late),
        float(median(times)),
        float(max(times)),
        float(sum(times)),
        max(entry.bound_ns for _, entry in late),
        _cause(job, late),
    )


def _cause(job: JobCollectives, late: Sequence[tuple[Collective, LateEntry]]) -> LatenessCause | None:
    """Compare what the rank did before it was late with what the ranks that it was later than did meanwhile."""
    windows = {(one.rank, id(one.after)): one for some in job.windows.values() for one in some}
    mine, theirs = [], []
    for one, entry in late:
        both = windows.get((entry.rank, id(one))), windows.get((entry.than, id(one)))
        if both[0] is not None and both[1] is not None:
            mine.append(both[0])
            theirs.append(both[1])
    if not mine:
        return None
    # Medians: a window in which something else happened once, such as a compilation, says nothing.
    longer = median(one.ns - other.ns for one, other in zip(mine, theirs, strict=True))
    here, there = [job.kernel_times(one) for one in mine], [job.kernel_times(one) for one in theirs]
    extra = {
        kernel: median(one.get(kernel, 0) - other.get(kernel, 0) for one, other in zip(here, there, strict=True))
        for kernel in {kernel for one in here for kernel in one}
    }
    window_ns = float(median(one.ns for one in mine))
    kernel = max(extra, key=lambda name: extra[name], default="")
    if not kernel or extra[kernel] < _CAUSE_SHARE * max(longer, 1):
        return LatenessCause(len(mine), window_ns)
    region, region_ns, executions = _region(job.lives, kernel, mine[0].rank, {one.rank for one in theirs})
    spent = float(median(one.get(kernel, 0) for one in here))
    return LatenessCause(len(mine), window_ns, kernel, spent, float(extra[kernel]), region, region_ns, executions)


def _region(lives: Lifetimes, kernel: str, rank: int, others: set[int]) -> tuple[str, float, tuple[float, float]]:
    """The region in which the warps of a kernel spend more time on one rank than on others, how much more per launch,
    and how often a warp executes it on both; no region if it is none in particular."""
    mine, theirs = _per_warp(lives, kernel, {rank}), _per_warp(lives, kernel, others)
    if mine is None or theirs is None:
        return "", 0.0, (0.0, 0.0)
    extra = mine[0] - theirs[0]
    at = int(extra.argmax())
    if extra[at] <= 0 or extra[at] < _REGION_SHARE * (mine[2] - theirs[2]):
        return "", 0.0, (0.0, 0.0)
    return lives.regions[at], float(extra[at]), (float(mine[1][at]), float(theirs[1][at]))


def _per_warp(lives: Lifetimes, kernel: str, ranks: set[int]) -> tuple[Float, Float, float] | None:
    """Means over the warps of a kernel on some ranks: ns and executions of each region, and lifetime in ns."""
    launches = [at for at in lives.kernels[kernel].tolist() if lives.launches[at].rank in ranks]
    tracks = np.flatnonzero(np.isin(lives.launch, launches))
    if not len(tracks):
        return None
    rows = lives.rows_of(tracks)
    rows = rows[lives.is_span[rows]]
    many = len(lives.regions)
    per_ns = lives.cycles_per_ns or 1.0
    spent = np.bincount(lives.region[rows], lives.own[rows], many) / per_ns / len(tracks)
    runs = np.bincount(lives.region[rows], minlength=many) / len(tracks)
    return spent, runs, float((lives.finish_ns - lives.begin_ns)[tracks].mean())


def cause_text(cause: LatenessCause | None) -> str:
    """The cause in a few words."""
    if cause is None:
        return "unknown: it was never late after another collective"
    if not cause.kernel:
        return "outside the recorded kernels"
    region = f", region {cause.region}" if cause.region else ""
    return f"{cause.kernel}{region}: {duration(cause.extra_ns)} longer"


def lateness_table(name: str, one: RankLateness) -> AnswerTable:
    """One row per late rank."""
    title = f"{name}: late into {plural(one.collectives, 'collective')} (clock bound {duration(one.widest_ns)})"
    rows = tuple(
        (
            f"rank {late.rank}",
            f"{late.late:,} of {late.collectives:,} ({percent(late.late / late.collectives, 0)})",
            duration(late.late_ns),
            duration(late.worst_ns),
            duration(late.bound_ns),
            cause_text(late.cause),
        )
        for late in one.late_ranks
    )
    return AnswerTable(title, ("rank", "late", "median", "worst", "bound", "cause"), rows)


def _run(ask: Answers) -> PerKernel[RankLateness]:
    found = rank_lateness(ask.job)
    return PerKernel({} if found is None else {JOB: found})


LATENESS = Analysis("lateness", run=_run, table=lateness_table)
