"""Expected findings: the kind and region of the first finding of each case, or no large finding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warplens.analyse.finding import Finding

_NO_DEFECT = ("critical path", "clock", "occupancy")
_LARGE = 0.12


@dataclass(frozen=True)
class Case:
    """Expectation for a kernel; without `kind`, no finding of `absent` (or any, if empty) may exceed 12 %."""

    kind: str | None
    region: str = ""
    absent: tuple[str, ...] = ()


CASES = {
    "balanced": Case(None, absent=("imbalance", "waves")),
    "skewed": Case("imbalance"),
    "tail": Case("waves"),
    "small grid": Case("waves"),
    "serial": Case("overlap", "load"),
    "hidden": Case(None, absent=("overlap", "waits")),
    "thrashing": Case("modes", "load"),
    "cached": Case(None, absent=("modes",)),
    "stalled": Case("waits", "wait copy"),
    "double buffered": Case(None, absent=("waits",)),
    "handoff": Case("overlap", "load"),
}


def problem_of(case: Case, found: Sequence[Finding]) -> str:
    """Return how the findings differ from the expectation, or an empty string."""
    sure = [one for one in found if not one.withheld and one.kind not in _NO_DEFECT]
    if case.kind is None:
        loud = [one for one in sure if one.gain > _LARGE and (not case.absent or one.kind in case.absent)]
        return f"claims {loud[0].kind} of {loud[0].gain:.0%}" if loud else ""
    if not sure:
        return f"says nothing instead of {case.kind}"
    top = sure[0]
    if top.kind != case.kind or (case.region and top.region != case.region):
        return f"says {top.kind} ({top.region}) instead of {case.kind} ({case.region})"
    return ""
