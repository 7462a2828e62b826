"""The launches of a job of several ranks, and what their warps spent: sums that launches of many files add up to."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from warplens.analyse.groups import reduce_by
from warplens.analyse.lifetimes import LaunchLifetime, Lifetimes


@dataclass(frozen=True)
class WarpSums:
    """Over the warps of one launch: how many there are, their lifetimes in cycles and in ns, and by region their own
    cycles and how often they executed it."""

    warps: int
    cycles: int
    ns: int
    regions: Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class WarpMeans:
    """Per warp: ns in each region, executions of each region, and the lifetime in ns."""

    region_ns: Mapping[str, float]
    executions: Mapping[str, float]
    ns: float


class JobLaunches:
    """Launches in the order of rank and number; `sums` gives those of each launch, when they are first asked for."""

    def __init__(self, launches: Sequence[LaunchLifetime], sums: Callable[[], Sequence[WarpSums]]) -> None:
        self.launches, self._sums_of = launches, sums

    @classmethod
    def of(cls, lives: Lifetimes) -> JobLaunches:
        return cls(lives.launches, lambda: warp_sums(lives))

    @cached_property
    def kernels(self) -> dict[str, list[int]]:
        """The launches (indices) of each kernel, in order of first launch."""
        return self._grouped(lambda launch: launch.kernel)

    @cached_property
    def variants(self) -> dict[str, list[int]]:
        """The same of each variant of a kernel, by label."""
        return self._grouped(lambda launch: launch.variant)

    def _grouped(self, name_of: Callable[[LaunchLifetime], str]) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for at, launch in enumerate(self.launches):
            found.setdefault(name_of(launch), []).append(at)
        return found

    @cached_property
    def largest(self) -> str:
        """The variant that took the most time of all."""
        times = {label: sum(self.launches[at].duration_ns for at in some) for label, some in self.variants.items()}
        return max(times, key=lambda label: times[label])

    @cached_property
    def sums(self) -> Sequence[WarpSums]:
        return self._sums_of()

    @cached_property
    def _cycles_per_ns(self) -> float:
        """The mean clock rate of all launches."""
        cycles, ns = sum(one.cycles for one in self.sums), sum(one.ns for one in self.sums)
        return cycles / ns if cycles > 0 and ns > 0 else 1.0

    def per_warp(self, kernel: str, ranks: Collection[int]) -> WarpMeans | None:
        """Means over the warps of a kernel on some ranks; None if it was not recorded there."""
        chosen = [self.sums[at] for at in self.kernels[kernel] if self.launches[at].rank in ranks]
        warps = sum(one.warps for one in chosen)
        if not warps:
            return None
        totals: dict[str, list[int]] = {}
        for one in chosen:
            for region, (own, count) in one.regions.items():
                total = totals.setdefault(region, [0, 0])
                total[0] += own
                total[1] += count
        return WarpMeans(
            {region: own / self._cycles_per_ns / warps for region, (own, _) in totals.items()},
            {region: count / warps for region, (_, count) in totals.items()},
            sum(one.ns for one in chosen) / warps,
        )


def warp_sums(lives: Lifetimes) -> list[WarpSums]:
    """The sums of each launch of a trace."""
    cells, names, many = lives.cells, lives.regions, max(len(lives.regions), 1)
    launches = len(lives.launches)
    lived = [
        reduce_by(np.add, values, lives.launch, launches).tolist()
        for values in (np.ones_like(lives.launch), lives.finish - lives.begin, lives.finish_ns - lives.begin_ns)
    ]
    used, index = np.unique(lives.launch[cells.track] * many + cells.region, return_inverse=True)
    own, count = (reduce_by(np.add, values, index, len(used)).tolist() for values in (cells.own, cells.count))
    regions: list[dict[str, tuple[int, int]]] = [{} for _ in range(launches)]
    for at, key in enumerate(used.tolist()):
        regions[key // many][names[key % many]] = own[at], count[at]
    return [WarpSums(warps, cycles, ns, each) for warps, cycles, ns, each in zip(*lived, regions, strict=True)]
