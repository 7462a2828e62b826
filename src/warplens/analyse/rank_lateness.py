"""Which rank is late into the collectives of a job, by how much, and which region of which kernel made it late.

A rank is late if it is certainly later than more ranks than are certainly later than it: by more than the bound on the
clocks of the two. It is compared with the middle one of all that it can be compared with.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from warplens.analyse.analysis import Analysis, Answers, AnswerTable
from warplens.analyse.collective_entries import ONE_RANK, Collective, JobCollectives
from warplens.analyse.job_launches import JobLaunches
from warplens.analyse.lifetimes import Float
from warplens.analyse.per_kernel import PerKernel
from warplens.wording import duration, percent, plural

_MOST_COMPARED = 64
"""Of more ranks, those that entered a collective last are compared with some of the others."""
_OUTLIERS = 2
"""So many times that a rank was late or early count no more than the next."""
_MATERIAL = 0.9
"""The longest times that a rank was late, up to this share of their sum, say what is not late by chance."""
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
    """A rank that was late into `late` of `collectives` collectives: not counting those that hardly add to the time
    that it was late in total. `late_ns` is the median of these.

    `consistency` is the sum of all times that it was late, less those that it was early, in standard deviations of what
    that sum is among equal ranks.
    """

    rank: int
    collectives: int
    late: int
    late_ns: float
    worst_ns: float
    total_ns: float
    bound_ns: float
    consistency: float
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
    ranks = {launch.rank for launch in job.launches.launches} | set(job.clocks.ranks)
    if len(ranks) < 2:
        return None
    places = {rank: at for at, rank in enumerate(job.clocks.ranks)}
    bounds = job.clocks.bounds()
    leads: dict[int, list[tuple[Collective, LateEntry]]] = {}
    for one in job.all:
        for entry in _entries(one, places, bounds):
            leads.setdefault(entry.rank, []).append((one, entry))
    late = [found for rank, some in leads.items() if (found := _late_rank(job, rank, some)) is not None]
    return RankLateness(
        len(ranks),
        len(job.all),
        tuple(sorted(late, key=lambda one: -one.total_ns)),
        tuple(entry for rank in sorted(leads) for _, entry in leads[rank] if entry.late_ns > 0),
        job.clocks.worst_ns,
    )


def _entries(one: Collective, places: Mapping[int, int], bounds: Float) -> Iterator[LateEntry]:
    """The ranks that were certainly late into a collective; with a negative time, those that were certainly early."""
    ranks = np.array(sorted((rank for rank in one.entered if rank in places), key=lambda rank: one.entered[rank]))
    if len(ranks) > _MOST_COMPARED:
        half = _MOST_COMPARED // 2
        ranks = ranks[np.append(np.linspace(0, len(ranks) - half - 1, half).astype(int), np.arange(-half, 0))]
    entered = np.array([one.entered[rank] for rank in ranks.tolist()])
    at = np.array([places[rank] for rank in ranks.tolist()], np.int64)
    ahead, bound = entered[:, None] - entered[None, :], bounds[np.ix_(at, at)]
    for place, rank in enumerate(ranks.tolist()):
        known = np.flatnonzero(np.abs(ahead[place]) > bound[place])
        known = np.insert(known, np.searchsorted(known, place), place)
        # The middle ones: of two ranks, the other one.
        for middle in (known[(len(known) - 1) // 2], known[len(known) // 2]):
            if middle != place:
                by = int(ahead[place, middle]), float(bound[place, middle])
                yield LateEntry(one.name, one.number, rank, int(ranks[middle]), *by)
                break


def _late_rank(job: JobCollectives, rank: int, leads: Sequence[tuple[Collective, LateEntry]]) -> LateRank | None:
    """What is late about a rank, by how late or early it was into each collective; None if it never was late."""
    signed = np.array([entry.late_ns for _, entry in leads], np.float64)
    # A compilation at the start may make a rank late by seconds, once or twice, which says nothing of the steps.
    most = np.sort(np.abs(signed))[-min(_OUTLIERS + 1, len(signed))]
    signed = signed.clip(-most, most)
    order = [at for at in np.argsort(-signed, kind="stable").tolist() if signed[at] > 0]
    if not order:
        return None
    # A late rank may be late into the first collective of each step only, and by chance into those that follow it.
    so_far = np.cumsum(signed[order])
    least = signed[order[int(np.searchsorted(so_far, _MATERIAL * so_far[-1]))]] / 2
    late = [leads[at] for at in sorted(order) if signed[at] >= least]
    times = [entry.late_ns for _, entry in late]
    return LateRank(
        rank,
        sum(rank in one.entered for one in job.all),
        len(late),
        float(median(times)),
        float(max(times)),
        float(so_far[-1]),
        max(entry.bound_ns for _, entry in late),
        float(signed.sum() / np.sqrt((signed**2).sum())),
        _cause(job, late),
    )


def _cause(job: JobCollectives, late: Sequence[tuple[Collective, LateEntry]]) -> LatenessCause | None:
    """Compare what the rank did before it was late with what the ranks that it was later than did meanwhile; None if no
    launch was recorded there."""
    windows = {(one.rank, id(one.after)): one for some in job.windows.values() for one in some}
    pairs = []
    for one, entry in late:
        mine, theirs = windows.get((entry.rank, id(one))), windows.get((entry.than, id(one)))
        if mine is not None and theirs is not None:
            # A window without a recorded launch says nothing: most profiles record only some launches of each kernel.
            times = job.kernel_times(mine), job.kernel_times(theirs)
            pairs += [(mine, theirs, *times)] if any(times) else []
    if not pairs:
        return None
    # Medians: a window in which something else happened once, such as a compilation, says nothing either.
    longer = median(mine.ns - theirs.ns for mine, theirs, *_ in pairs)
    extra = {
        kernel: median(here.get(kernel, 0) - there.get(kernel, 0) for *_, here, there in pairs)
        for kernel in {kernel for _, _, here, _ in pairs for kernel in here}
    }
    known = LatenessCause(len(pairs), float(median(mine.ns for mine, *_ in pairs)))
    kernel = max(extra, key=lambda name: extra[name], default="")
    if not kernel or extra[kernel] < _CAUSE_SHARE * max(longer, 1):
        return known
    region, region_ns, executions = _region(
        job.launches, kernel, late[0][1].rank, {theirs.rank for _, theirs, *_ in pairs}
    )
    return replace(
        known,
        kernel=kernel,
        kernel_ns=float(median(here.get(kernel, 0) for _, _, here, _ in pairs)),
        extra_ns=float(extra[kernel]),
        region=region,
        region_extra_ns=region_ns,
        executions=executions,
    )


def _region(job: JobLaunches, kernel: str, rank: int, others: set[int]) -> tuple[str, float, tuple[float, float]]:
    """The region in which the warps of a kernel spend more time on one rank than on others, how much more per launch,
    and how often a warp executes it on both; no region if it is none in particular."""
    mine, theirs = job.per_warp(kernel, {rank}), job.per_warp(kernel, others)
    if mine is None or theirs is None:
        return "", 0.0, (0.0, 0.0)
    extra = {region: ns - theirs.region_ns.get(region, 0.0) for region, ns in mine.region_ns.items()}
    region = max(extra, key=lambda name: extra[name], default="")
    if not region or extra[region] <= 0 or extra[region] < _REGION_SHARE * (mine.ns - theirs.ns):
        return "", 0.0, (0.0, 0.0)
    return region, extra[region], (mine.executions[region], theirs.executions.get(region, 0.0))


def cause_text(cause: LatenessCause | None) -> str:
    """The cause in a few words."""
    if cause is None:
        return "unknown: no launch was recorded before"
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


LATENESS = Analysis("lateness", run=_run, table=lateness_table, without=ONE_RANK)
