"""When each rank of a job entered and left each collective, and what it did before."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, zip_longest

import numpy as np

from warplens.analyse.job_launches import JobLaunches
from warplens.analyse.lifetimes import Int, LaunchLifetime, Lifetimes
from warplens.errors import UsageError
from warplens.trace.model import Trace
from warplens.trace.rank_clocks import RankClocks

COLLECTIVE_KERNELS = "nccl|nvshmem"
ONE_RANK = "needs a trace of several ranks that ran the same collectives; see docs/scale.md"
"""What analyses of a job say of other traces."""
"""Kernels with such names are collectives."""


@dataclass(frozen=True)
class Collective:
    """One collective: its name, its number among those of the name, and when each rank entered and left it in ns."""

    name: str
    number: int
    entered: Mapping[int, int]
    left: Mapping[int, int]

    @property
    def last(self) -> int:
        """The rank that entered last."""
        return max(self.entered, key=lambda rank: self.entered[rank])


@dataclass(frozen=True)
class RankWindow:
    """The time of a rank from a collective to its next one."""

    rank: int
    begin_ns: int
    end_ns: int
    before: Collective
    after: Collective

    @property
    def ns(self) -> int:
        return self.end_ns - self.begin_ns


class JobCollectives:
    """The collectives of a job in the order in which they completed.

    `kernels_like` is a regular expression for kernels that are collectives, besides `COLLECTIVE_KERNELS`.
    """

    def __init__(self, launches: JobLaunches, clocks: RankClocks, kernels_like: str | None = None) -> None:
        self.launches, self.clocks = launches, clocks
        self._times: dict[int, tuple[list[str], Int, Int, Int]] = {}
        try:
            self._kernels = re.compile(f"{COLLECTIVE_KERNELS}|{kernels_like}" if kernels_like else COLLECTIVE_KERNELS)
        except re.error as error:
            raise UsageError(f"{kernels_like!r} is not a regular expression: {error}") from None

    @classmethod
    def of(cls, trace: Trace, kernels_like: str | None = None) -> JobCollectives:
        return cls(JobLaunches.of(Lifetimes.of(trace)), RankClocks.of(trace.meta), kernels_like)

    @cached_property
    def all(self) -> list[Collective]:
        found = [*self._calls(), *self._launches()]
        return sorted(found, key=lambda one: max(one.entered.values()))

    def is_collective(self, kernel: str) -> bool:
        return bool(self._kernels.search(kernel))

    def _calls(self) -> list[Collective]:
        by_key: dict[tuple[str, int], list[int]] = {}
        calls = self.clocks.calls
        for at, call in enumerate(calls):
            by_key.setdefault((call.group, call.number), []).append(at)
        return [
            Collective(
                calls[some[0]].operation,
                number,
                {calls[at].rank: calls[at].begin_ns for at in some},
                {calls[at].rank: calls[at].begin_ns + calls[at].stay_ns for at in some if calls[at].stay_ns >= 0},
            )
            for (_, number), some in by_key.items()
            if len(some) > 1
        ]

    def _launches(self) -> list[Collective]:
        """Collectives that are launches of kernels: the n-th launch on one rank belongs to the n-th on the others."""
        found = []
        for kernel in filter(self.is_collective, self.launches.kernels):
            for number, launches in enumerate(matching_launches(self.launches, kernel)):
                entered = {one.rank: one.begin_ns for one in launches}
                found.append(Collective(kernel, number, entered, {one.rank: one.end_ns for one in launches}))
        return found

    @cached_property
    def windows(self) -> dict[int, list[RankWindow]]:
        """The windows of each rank, in order. Where the end of a collective is not known, its last entry stands for
        it."""
        found: dict[int, list[RankWindow]] = {}
        for rank in {rank for one in self.all for rank in one.entered}:
            mine = sorted((one for one in self.all if rank in one.entered), key=lambda one: one.entered[rank])
            found[rank] = [
                RankWindow(rank, min(_left(before, rank), after.entered[rank]), after.entered[rank], before, after)
                for before, after in pairwise(mine)
            ]
        return found

    def kernel_times(self, window: RankWindow) -> dict[str, int]:
        """For each kernel that is no collective, how long its recorded launches ran on the rank in the window."""
        kernels, code, begin, end = self._times_of(window.rank)
        inside = np.minimum(end, window.end_ns) - np.maximum(begin, window.begin_ns)
        spent = np.bincount(code, np.maximum(inside, 0), len(kernels))
        return {kernels[at]: int(spent[at]) for at in np.flatnonzero(spent).tolist()}

    def _times_of(self, rank: int) -> tuple[list[str], Int, Int, Int]:
        """The names of kernels, and of each launch of a rank that is no collective: its kernel, begin and end."""
        if rank not in self._times:
            kernels = list(self.launches.kernels)
            mine = [one for one in self.launches.launches if one.rank == rank and not self.is_collective(one.kernel)]
            columns = [(kernels.index(one.kernel), one.begin_ns, one.end_ns) for one in mine]
            code, begin, end = np.array(columns, np.int64).reshape(-1, 3).T
            self._times[rank] = kernels, code, begin, end
        return self._times[rank]


def matching_launches(job: JobLaunches, kernel: str) -> list[Sequence[LaunchLifetime]]:
    """The launches of a kernel on several ranks that belong together: the first of each rank, the second, and so on. A
    rank that was killed has fewer than the others."""
    by_rank: dict[int, list[LaunchLifetime]] = {}
    for at in job.kernels[kernel]:
        by_rank.setdefault(job.launches[at].rank, []).append(job.launches[at])
    together = (tuple(filter(None, some)) for some in zip_longest(*by_rank.values()))
    return [some for some in together if len(some) > 1]


def _left(one: Collective, rank: int) -> int:
    return one.left.get(rank, max(one.entered.values()))
