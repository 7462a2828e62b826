"""Do barriers cost time that no single warp needs: in each round another warp is late, and all wait for it?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import Finding
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.lifetimes import Float, reduce_by
from warplens.analyse.wait_classes import WaitClass
from warplens.analyse.waves import WAVES
from warplens.wording import percent

CAUSE = "unneeded barrier"
_LEAST_WAIT = 0.05
_LEAST_GAIN = 0.03
_MOST = 1.1


@dataclass(frozen=True)
class BarrierCost:
    """Of each block, the share of its time that its busiest warp does not work: what barriers add to it."""

    lost: Float
    longest: float
    """What the kernel loses where all blocks run at once: from the block that lasts longest to the warp that works
    longest."""
    rounds: float
    """Barriers per warp."""


def barrier_cost(e: Evidence, regions: list[str]) -> BarrierCost:
    """A block without barriers takes as long as its busiest warp works; the rest of its time is the barriers' doing."""
    lives = e.lives
    tracks = np.flatnonzero(lives.tracks_of(e.label))
    blocks, group = np.unique(lives.block[tracks], return_inverse=True)
    alone = (lives.finish - lives.begin - e.cycles_in(regions))[tracks]
    busiest = reduce_by(np.maximum, alone, group.reshape(-1), len(blocks))
    lasted = (lives.blocks.end - lives.blocks.begin)[blocks]
    lost = 1 - np.minimum(busiest / np.maximum(lasted, 1), 1.0)
    longest = 1 - min(float(busiest.max() / max(lasted.max(), 1)), 1.0)
    return BarrierCost(lost, longest, len(e.spans_in(regions)) / len(tracks))


def _judge(e: Evidence) -> Finding:
    regions = [region for region in e.waiting if e.wait_class(region) is WaitClass.BARRIER]
    share = sum(e.waiting[region] for region in regions)
    if share < _LEAST_WAIT:
        waited = f"warps wait {percent(share)} of their time at barriers" if regions else "no barrier is marked"
        return e.refuted(CAUSE, waited)
    cost = barrier_cost(e, regions)
    lost = float(cost.lost.mean())
    if lost < _LEAST_GAIN:
        return e.refuted(
            CAUSE,
            f"warps wait {percent(share)} of their time at barriers, but blocks take as long as their busiest warp",
        )
    return e.supported(
        CAUSE,
        f"Warps wait {percent(share)} of their time at `{regions[0]}`, {cost.rounds:,.0f} times each. Even the busiest "
        f"warp of a block spends {percent(lost)} of the block's time there: in each round another warp is the last.",
        "Remove the barrier where no data passes between warps; else make it narrower (a warp or a named barrier), put "
        "more work between two of them, or arrive early and wait late.",
        e.gain(lost, roof=_MOST * (max(lost, cost.longest) if e.of(WAVES).waves <= 1 else lost)),
        region=regions[0],
        evidence={
            "wait_share": share,
            "lost_share_of_block": e.over_blocks(cost.lost),
            "barriers_per_warp": cost.rounds,
        },
        refuted_by="The kernel without the barrier takes as long, or gives another result.",
    )


BARRIER_WAITS = Hypothesis(CAUSE, _judge, explains=frozenset({"too little in flight", "low occupancy"}))
