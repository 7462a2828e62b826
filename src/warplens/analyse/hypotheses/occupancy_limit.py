"""Do registers or shared memory keep blocks off the SM that would hide latency?"""

from __future__ import annotations

import math

from warplens.analyse.code_counts import SCHEDULERS
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.exposed_latency import exposure, needed_bytes
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.load_waits import most_in_flight
from warplens.analyse.occupancy import OCCUPANCY
from warplens.analyse.waves import WAVES
from warplens.driver.theoretical_occupancy import Occupancy
from warplens.wording import byte_size, percent

CAUSE = "low occupancy"
_ENOUGH = 16
"""Warps per SM: four per scheduler hide most latencies."""
_LIFTABLE = {"registers", "shared memory"}
_RECORD_AGAIN = "Record again with this version (it records registers and shared memory), or pass --ncu."
_RECORD_ON_GPU = "Record it on a GPU: the interpreter has neither registers nor blocks that share an SM."


def _judge(e: Evidence) -> Finding:
    limit, grid = e.of(OCCUPANCY).theoretical, e.of(WAVES)
    warps = e.warps.per_sm
    if warps >= _ENOUGH:
        return e.refuted(CAUSE, f"{warps:.1f} warps per SM are enough to hide most latencies")
    slots = f" ({percent(warps / limit.warps * limit.share)} of the warp slots)" if limit else ""
    shown = f"{warps:.1f} warps per SM{slots}"
    seen = exposure(e)
    idle = 0.0 if e.mostly_unmarked else seen.fetching
    if limit is None:
        if grid.waves <= 1:
            return e.refuted(CAUSE, f"{shown}: all blocks ran at once")
        if idle < 0.1 and warps >= SCHEDULERS:
            return e.refuted(CAUSE, f"{shown}, and nothing shows that they are too few")
        return e.undecided(
            CAUSE,
            f"There are {shown}; the trace does not say whether registers or shared memory keep more off the SM.",
            _RECORD_ON_GPU if e.clock == "simulated" else _RECORD_AGAIN,
        )
    possible = _without_limit(limit, grid.blocks / max(grid.sms, 1))
    if grid.blocks <= grid.sms * limit.blocks or possible <= 1.25 * warps:
        return e.refuted(CAUSE, f"{shown}: there are not enough blocks for more")
    if not set(limit.limiters) <= _LIFTABLE:
        return e.refuted(CAUSE, f"{shown}: an SM holds no more blocks of this size")
    full = seen.in_flight is not None and seen.in_flight >= seen.needed
    if e.memory_busy or full or (seen.saturates and warps >= SCHEDULERS):
        return e.refuted(CAUSE, f"{shown}, which keep the memory busy")
    if idle < 0.1 and warps >= SCHEDULERS:
        return e.refuted(CAUSE, f"{shown}, and work runs on the SM for most of the time")
    most = 1 - warps / min(possible, 2 * _ENOUGH)
    if seen.in_flight is None and e.memory_reached is None and most_in_flight(e) >= needed_bytes(e):
        return e.undecided(
            CAUSE,
            f"There are {shown}, which may have {byte_size(most_in_flight(e))} in flight on an SM: enough to keep the "
            "memory busy. The trace does not show how long they wait for it.",
            "Mark the loads and the work of one round by themselves, or record it with `warplens run --auto`.",
            Gain.between(0.0, most),
        )
    limiters = " and ".join(limit.limiters)
    unhidden = f"; for {percent(idle)} of the SM time data is fetched and no work runs" if idle >= 0.1 else ""
    # Twice the warps take half the time as long as nothing but latency is the limit, which more and more of them reach.
    least = 1 - math.sqrt(max(warps / _ENOUGH, 1 - most))
    return e.supported(
        CAUSE,
        f"Too few warps to hide latency: {shown}, limited by {limiters}{unhidden}.",
        f"Make room for more blocks: {limit.lift}.",
        e.gain(least, most, roof=min(most, e.room)),
        HIGH if warps < SCHEDULERS else MEDIUM,
        evidence={
            "warps_per_sm": warps,
            "theoretical_warps": limit.warps,
            "limiter": limiters,
            "sm_time_without_work": idle,
            "possible_warps_without_limit": possible,
        },
        refuted_by="The kernel with half the shared memory or registers per block takes as long.",
    )


def _without_limit(limit: Occupancy, blocks_per_sm: float) -> float:
    """The warps that an SM would hold if registers and shared memory were no limit, and the grid had enough blocks."""
    others = [count for name, count in limit.allowed.items() if name not in limit.limiters]
    per_block = limit.warps / max(limit.blocks, 1)
    return min(min(others, default=limit.blocks), max(blocks_per_sm, limit.blocks)) * per_block


OCCUPANCY_LIMIT = Hypothesis(CAUSE, _judge, explains=frozenset({"too little in flight", "cache misses"}))
