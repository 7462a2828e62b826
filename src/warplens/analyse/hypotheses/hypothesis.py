"""What a hypothesis consists of."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import Finding


@dataclass(frozen=True)
class Hypothesis:
    """One possible cause of lost time.

    `judge` says of the evidence about one kernel variant whether it is supported, undecided or refuted. `explains` are
    causes that are its consequences where both are found. `needs_headroom` says that removing the cause gains nothing
    from a kernel that is on its roof. `about_grid` says that it is about when blocks ran, so that it is withheld where
    the trace does not know that of all of them. `about_region` says that it is about the time in its region, so that a
    measured slope of the region (`warplens sensitivity`) limits its gain. `between_ranks` says that it was held against
    the bound on the clocks of the ranks, so that the error of times inside a launch does not count. `needs_timeline`
    says that it asks when something happened, so that it is not judged on statistics that warps kept
    (mode="aggregate").
    """

    cause: str
    judge: Callable[[Evidence], Finding]
    explains: frozenset[str] = frozenset()
    needs_headroom: bool = True
    about_grid: bool = False
    about_region: bool = False
    between_ranks: bool = False
    needs_timeline: bool = True
