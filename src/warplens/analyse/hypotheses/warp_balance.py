"""Do the warps of a block have unequal work, so that the others wait for the busiest?"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from warplens.analyse.barrier_regions import barrier_regions, either_may_go, exchanges, free_regions, may_exchange
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, Finding
from warplens.analyse.groups import reduce_by
from warplens.analyse.hypotheses.barrier_waits import meeting_regions
from warplens.analyse.hypotheses.exposed_latency import exposure
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.imbalance import IMBALANCE, RoleBalance
from warplens.analyse.region_purpose import Purpose
from warplens.wording import numbered, percent

CAUSE = "warp imbalance"
_LEAST = 0.05
_FACTOR = 1.2
_ENOUGH_WARPS = 16
"""Of an SM: four per scheduler hide most latencies."""
_MOSTLY = 0.5
_ADVICE = "Give each warp of the role the same number of tiles or rows, or let them take work from a counter."
_REFUTED_BY = "The busiest warp's work given to all warps in equal parts takes as long."


def _judge(e: Evidence) -> Finding:
    roles = e.of(IMBALANCE).roles
    worst = max(roles, key=lambda one: one.loss, default=None)
    found = _by_round(e, worst)
    if found is not None:
        return found
    if worst is None:
        return e.refuted(CAUSE, "no two warps of a block do the same work")
    if worst.loss < _LEAST or worst.factor < _FACTOR:
        return e.refuted(CAUSE, f"the busiest warp of a block has {percent(worst.factor - 1)} more work than the mean")
    if _only_loads(e, worst.region):
        return e.refuted(CAUSE, f"all warps run the same loads in `{worst.region}`, which take turns at the memory")
    running = e.warps.per_sm * (1 - e.warps.waiting)
    who = numbered("warp", worst.busiest[:4]) if worst.busiest else "a different warp in each block"
    enough = running >= _ENOUGH_WARPS
    masked = f" With {running:.0f} warps of an SM at work at a time, others may fill the gaps." if enough else ""
    where = f", mostly in `{worst.region}`" if worst.region else ""
    return e.supported(
        CAUSE,
        f"Work is uneven between {worst.role.name}: the busiest has {percent(worst.factor - 1)} more work than the "
        f"mean of its block ({who}{where}).{masked}",
        _ADVICE,
        # Where enough warps of an SM have work at any time, it is busy while the others have none.
        e.gain(min(max(1 - running / _ENOUGH_WARPS, 0.0), worst.loss), worst.loss, roof=min(1.15 * worst.loss, e.room)),
        LOW if enough else _confidence(len(worst.busiest), len(worst.role.warps)),
        region=worst.region,
        warps=worst.busiest or worst.role.warps,
        evidence={"busiest_over_mean": worst.factor, "share_of_block_time": worst.loss, "busy_warps_per_sm": running},
        refuted_by=_REFUTED_BY,
    )


def _by_round(e: Evidence, whole: RoleBalance | None) -> Finding | None:
    """Warps whose work differs from round to round, between barriers at which data passes between them, or may: over
    the whole kernel each has as much, and yet all wait for the last of each round."""
    every = barrier_regions(e)
    free = free_regions(e, every)
    regions = [region for region in every if region not in free]
    inside = {} if every else meeting_regions(e)
    regions = regions or list(inside)
    if regions and either_may_go(e, regions[0]):
        return None
    if not regions or not may_exchange(e, regions) or (region := _of_unequal_length(e, inside)) is None:
        return None
    waited = sum(inside.values()) or sum(e.waiting[name] for name in regions)
    factor = 1 / max(1 - waited, _LEAST)
    if waited < _LEAST or factor < _FACTOR or (whole is not None and whole.loss >= waited):
        return None
    idle, sure = _idle_meanwhile(e, sum(inside.values())), bool(inside) or exchanges(e, regions)
    return e.supported(
        CAUSE,
        f"Work is uneven between the warps of a block from round to round (`{region}`): they wait {percent(waited)} of "
        f"their time for the last one at `{regions[0]}`, where data {'passes' if sure else 'may pass'} between them.",
        "Give the warps of a block tasks of about the same size (sort them, or split the long ones), or let them take "
        "tasks from a counter and meet less often.",
        e.gain(min(idle, waited), waited, roof=min(1.15 * waited, e.room)),
        HIGH if sure and idle >= _MOSTLY else MEDIUM,
        region=region,
        evidence={"busiest_over_mean": factor, "waiting_share": waited},
        refuted_by=_REFUTED_BY,
    )


def _only_loads(e: Evidence, region: str) -> bool:
    """Whether a region loads the same for each warp and does little else: what it takes more is a queue. Older
    recordings do not say which loops have a known length."""
    code = e.code.get(region)
    return bool(code and code.moves_memory and code.fetch_bytes and not code.differs_by_warp)


def _of_unequal_length(e: Evidence, others: Collection[str] = ()) -> str | None:
    """The region that takes most time of those, but `others`, whose work the code leaves open: it has a loop of unknown
    length, or some warps of a block run it far more often than others."""
    lives, cells = e.lives, e.lives.cells
    for name, share in e.warps.regions.items():  # the longest first
        code = e.code.get(name)
        if code is None or share < _LEAST or e.kinds[name] is Purpose.WAIT or name in others:
            continue
        here = cells.region == lives.region_codes[name]
        tracks = np.unique(cells.track[here])
        count = np.bincount(cells.track[here], cells.count[here], len(lives))[tracks]
        blocks, group = np.unique(lives.block[tracks], return_inverse=True)
        group = group.reshape(-1)
        most = reduce_by(np.maximum, count, group, len(blocks))
        mean = np.bincount(group, count) / np.bincount(group)
        if code.differs_by_warp or float((most / np.maximum(mean, 1)).mean()) >= _FACTOR:
            return name
    return None


def _idle_meanwhile(e: Evidence, inside: float) -> float:
    """How far other warps leave an SM idle while some wait, some of them `inside` regions that are not marked as waits:
    by the bytes in flight of those that fetch, else by how many are at work."""
    seen, working = exposure(e), 1 - e.warps.waiting - inside
    if seen.in_flight is not None and sum(e.fetching.values()) >= _MOSTLY * working:
        return max(1 - seen.in_flight / seen.needed, 0.0)
    return max(1 - e.warps.per_sm * working / _ENOUGH_WARPS, 0.0)


def _confidence(busiest: int, warps: int) -> str:
    """Few warps that are always the busiest have more work; many of them take turns."""
    return LOW if not busiest else HIGH if 2 * busiest < warps else MEDIUM


WARP_BALANCE = Hypothesis(
    CAUSE,
    _judge,
    explains=frozenset({"too little in flight", "block imbalance", "unneeded barrier"}),
    needs_timeline=False,
)
