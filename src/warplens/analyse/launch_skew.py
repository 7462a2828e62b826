"""The skew of launches: how far apart the ranks of a job begin the same launch of a kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, fact_table
from warplens.analyse.collective_entries import ONE_RANK, JobCollectives, matching_launches
from warplens.analyse.per_kernel import PerKernel
from warplens.wording import duration, plural


@dataclass(frozen=True)
class LaunchSkew:
    """Over the launches that several ranks made: the time from the first rank's begin to the last one's, and the rank
    that was last most often. `bound_ns` is what the clocks may add or hide; `beyond` counts launches above it."""

    launches: int
    ranks: int
    median_ns: float
    p95_ns: float
    worst_ns: float
    bound_ns: float
    beyond: int
    last_rank: int
    last_count: int


def launch_skew(job: JobCollectives) -> PerKernel[LaunchSkew]:
    """The skew of every kernel that several ranks launched."""
    found = {}
    for kernel in job.launches.kernels:
        together = matching_launches(job.launches, kernel)
        if not together:
            continue
        first = [min(some, key=lambda one: one.begin_ns) for some in together]
        last = [max(some, key=lambda one: one.begin_ns) for some in together]
        skew = np.array([b.begin_ns - a.begin_ns for a, b in zip(first, last, strict=True)])
        bounds = np.array([job.clocks.bound_ns(a.rank, b.rank) for a, b in zip(first, last, strict=True)])
        ranks, counts = np.unique([one.rank for one in last], return_counts=True)
        p50, p95, worst = np.percentile(skew, (50, 95, 100)).tolist()
        most = int(counts.argmax())
        found[kernel] = LaunchSkew(
            len(together),
            len(together[0]),
            p50,
            p95,
            worst,
            float(bounds.max()),
            int((skew > bounds).sum()),
            int(ranks[most]),
            int(counts[most]),
        )
    return PerKernel(found)


def skew_table(kernel: str, one: LaunchSkew) -> AnswerTable:
    """How far apart the ranks begin."""
    return fact_table(
        f"{kernel}: skew of {plural(one.launches, 'launch')} on {one.ranks} ranks",
        [
            ("median", duration(one.median_ns)),
            ("p95", duration(one.p95_ns)),
            ("worst", duration(one.worst_ns)),
            ("clock bound", duration(one.bound_ns)),
            ("beyond the bound", f"{one.beyond:,} of {one.launches:,}"),
            ("last most often", f"rank {one.last_rank} ({one.last_count:,} times)"),
        ],
    )


SKEW = Analysis("skew", run=lambda ask: launch_skew(ask.job), table=skew_table, without=ONE_RANK)
