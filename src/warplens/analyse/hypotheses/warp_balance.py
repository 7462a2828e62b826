"""Do the warps of a block have unequal work, so that the others wait for the busiest?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, Finding
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.imbalance import IMBALANCE
from warplens.wording import numbered, percent

CAUSE = "warp imbalance"
_LEAST = 0.05
_FACTOR = 1.2
_ENOUGH_WARPS = 16
"""Of an SM: four per scheduler hide most latencies."""


def _judge(e: Evidence) -> Finding:
    roles = e.of(IMBALANCE).roles
    worst = max(roles, key=lambda one: one.loss, default=None)
    if worst is None:
        return e.refuted(CAUSE, "no two warps of a block do the same work")
    if worst.loss < _LEAST or worst.factor < _FACTOR:
        return e.refuted(CAUSE, f"the busiest warp of a block has {percent(worst.factor - 1)} more work than the mean")
    running = e.warps.per_sm * (1 - e.warps.waiting)
    who = numbered("warp", worst.busiest[:4]) if worst.busiest else "a different warp in each block"
    enough = running >= _ENOUGH_WARPS
    masked = f" With {running:.0f} warps of an SM at work at a time, others may fill the gaps." if enough else ""
    where = f", mostly in `{worst.region}`" if worst.region else ""
    return e.supported(
        CAUSE,
        f"Work is uneven between {worst.role.name}: the busiest has {percent(worst.factor - 1)} more work than the "
        f"mean of its block ({who}{where}).{masked}",
        "Give each warp of the role the same number of tiles or rows, or let them take work from a counter.",
        # Where enough warps of an SM have work at any time, it is busy while the others have none.
        e.gain(min(max(1 - running / _ENOUGH_WARPS, 0.0), worst.loss), worst.loss, roof=1.15 * worst.loss),
        LOW if enough else _confidence(len(worst.busiest), len(worst.role.warps)),
        region=worst.region,
        warps=worst.busiest or worst.role.warps,
        evidence={"busiest_over_mean": worst.factor, "share_of_block_time": worst.loss, "busy_warps_per_sm": running},
        refuted_by="The busiest warp's work given to all warps in equal parts takes as long.",
    )


def _confidence(busiest: int, warps: int) -> str:
    """Few warps that are always the busiest have more work; many of them take turns."""
    return LOW if not busiest else HIGH if 2 * busiest < warps else MEDIUM


WARP_BALANCE = Hypothesis(CAUSE, _judge, needs_timeline=False)
