"""Expected findings: the kind and region of the first finding of each case, or that nothing of some kinds is found."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from warplens.analyse.finding import Finding


@dataclass(frozen=True)
class Case:
    """Expectation for a kernel: the first finding's kind and region, and kinds that must not be among the findings."""

    kind: str
    region: str = ""
    absent: tuple[str, ...] = ()


_LATENCY = "too little in flight"
CASES = {
    "balanced": Case("nothing to fix", absent=("block imbalance", "last wave")),
    "skewed": Case("block imbalance"),
    "tail": Case("last wave"),
    "small grid": Case("too few blocks"),
    "serial": Case(_LATENCY, "load"),
    "hidden": Case("nothing to fix", absent=(_LATENCY,)),
    "thrashing": Case(_LATENCY, "load"),
    "cached": Case(_LATENCY, "load"),
    "stalled": Case(_LATENCY, "wait copy"),
    "double buffered": Case("nothing to fix"),
    "handoff": Case("unmarked time", "wait full"),
}


def problem_of(case: Case, found: Sequence[Finding]) -> str:
    """Return how the findings differ from the expectation, or an empty string."""
    loud = [one for one in found if one.kind in case.absent]
    if loud:
        return f"claims {loud[0].kind} of up to {loud[0].gain.high:.0%}"
    if not found:
        return f"says nothing instead of {case.kind}"
    top = found[0]
    if top.kind != case.kind or (case.region and top.region != case.region):
        return f"says {top.kind} ({top.region}) instead of {case.kind} ({case.region})"
    return ""
