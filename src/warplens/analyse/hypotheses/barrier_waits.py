"""Do barriers cost time that no single warp needs: in each round another warp is late, and all wait for it?"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.analyse.barrier_regions import barrier_regions, either_may_go, exchanges, free_regions, may_exchange
from warplens.analyse.code_counts import LEAST_CYCLES, MOST_CYCLES, SCHEDULERS
from warplens.analyse.duration_shapes import median_cycles
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import LOW, MEDIUM, Finding
from warplens.analyse.groups import reduce_by
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.lifetimes import Float
from warplens.analyse.load_waits import LATENCY_NS
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.waves import WAVES
from warplens.wording import integer, percent

CAUSE = "unneeded barrier"
_LEAST_WAIT = 0.05
_LEAST_GAIN = 0.03
_NEARLY_ALL = 0.9
_MOST = 1.1
_OFTEN = 8
"""Barriers that a warp passes: with fewer of them, what it waits there is seldom much."""
_CACHE_NS = 130
"""Of a load from the cache."""
_SHARED_CYCLES = 30
_ADVICE = (
    "Remove the barrier where no data passes between warps; else make it narrower (a warp or a named barrier), put "
    "more work between two of them, or arrive early and wait late."
)
_REFUTED_BY = "The kernel without the barrier takes as long, or gives another result."


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
    """A block without barriers takes as long as its busiest warp works; the rest of its time is the barriers' doing.
    What marks take of a warp's time is left out of both."""
    lives = e.lives
    marks, many = e.mark_cycles, len(lives.blocks)
    alone = lives.finish - lives.begin - e.cycles_in(regions) - marks
    busiest = reduce_by(np.maximum, alone, lives.block, many)
    marked = reduce_by(np.maximum, marks, lives.block, many)
    lasted = np.maximum(lives.blocks.end - lives.blocks.begin - marked, 1)
    lost = 1 - np.minimum(busiest / lasted, 1.0)
    longest = 1 - min(float(busiest.max() / lasted.max()), 1.0)
    return BarrierCost(lost, longest, len(e.spans_in(regions)) / len(lives))


def _judge(e: Evidence) -> Finding:
    if e.warps_per_block <= 1:
        return e.refuted(CAUSE, "blocks have one warp, which waits for no other")
    every = barrier_regions(e)
    free = free_regions(e, every)
    proven = sum(e.waiting[region] for region in free) >= _LEAST_WAIT
    # What is proven to be free is judged by itself: the others stay.
    regions = free if proven else [region for region in every if region not in free]
    share = sum(e.waiting[region] for region in regions)
    if share < _LEAST_WAIT:
        return _inside_regions(e) or e.refuted(
            CAUSE, f"warps wait {percent(share)} of their time at barriers" if regions else "no barrier is marked"
        )
    if exchanges(e, regions):
        return e.refuted(CAUSE, f"data passes between warps at `{regions[0]}`, so that the barrier is needed")
    cost = barrier_cost(e, regions)
    lost = float(cost.lost.mean())
    if lost < _LEAST_GAIN:
        return e.refuted(
            CAUSE,
            f"warps wait {percent(share)} of their time at barriers, but blocks take as long as their busiest warp",
        )
    said, unknown = _said_by_code(e, regions), may_exchange(e, regions)
    if unknown:
        said = " Data may pass there: the code does not say."
        if either_may_go(e, regions[0]):
            said += " Of two barriers of which one is enough, it is the one that warps pass more often."
    gain_at_least = 0.0 if unknown else lost
    roof = _MOST * (max(lost, cost.longest) if e.of(WAVES).waves <= 1 else lost)
    return e.supported(
        CAUSE,
        f"Warps wait {percent(share)} of their time at `{regions[0]}`, {cost.rounds:,.0f} times each. Even the busiest "
        f"warp of a block spends {percent(lost)} of the block's time there: in each round another warp is the last."
        + said,
        _ADVICE,
        e.gain(gain_at_least, lost, roof=min(roof, e.room)),
        LOW if unknown else MEDIUM,
        region=regions[0],
        evidence={
            "wait_share": share,
            **({"from": "PTX"} if said and not unknown else {}),
            "lost_share_of_block": e.over_blocks(cost.lost),
            "barriers_per_warp": cost.rounds,
        },
        refuted_by=_REFUTED_BY,
    )


def _said_by_code(e: Evidence, regions: list[str]) -> str:
    code = [e.code[region] for region in regions if region in e.code]
    if not any(one.unneeded_barriers for one in code):
        return ""
    every = all(one.unneeded_barriers >= one.barriers for one in code)
    return f" No shared memory passes from one warp to another at {'it' if every else 'some of them'}."


def _inside_regions(e: Evidence) -> Finding | None:
    """Barriers inside a region, at some of which no data passes between warps: what the region takes beyond its
    instructions, its accesses and the data that it waits for is theirs."""
    found, meeting = {}, meeting_regions(e)
    for name, one in e.code.items():
        if name in e.warps.regions and one.unneeded_barriers and e.kinds[name] is not Purpose.WAIT:
            if name in meeting:
                continue  # without the unneeded ones, warps wait as long at the others for those that come late
            least, most = _beyond_work(e, name)
            share = e.shares.get(name, 0.0)
            found[name] = share * least * one.unneeded_barriers / one.barriers, share * most
    name = max(found, key=lambda region: sum(found[region]), default="")
    if not name or found[name][1] < _LEAST_GAIN:
        return None
    one, (least, most) = e.code[name], found[name]
    if least < _LEAST_GAIN and not one.looped_barriers and one.barriers * _rounds(e, name) < _OFTEN:
        return e.refuted(CAUSE, f"warps pass the barriers in `{name}` a few times only, after work of unknown length")
    return e.supported(
        CAUSE,
        f"`{name}` waits at {integer(one.barriers)} barriers each time, and at {integer(one.unneeded_barriers)} of "
        "them no shared memory passes from one warp to another. It takes "
        f"{integer(median_cycles(e.lives, e.label, name))} cycles, more than its instructions and the data that it "
        "waits for do.",
        _ADVICE,
        e.gain(least, most, roof=e.room),
        MEDIUM if least >= _LEAST_GAIN else LOW,
        region=name,
        evidence={"barriers": one.barriers, "unneeded_barriers": one.unneeded_barriers, "from": "PTX"},
        refuted_by=_REFUTED_BY,
    )


def meeting_regions(e: Evidence) -> dict[str, float]:
    """Regions that are not marked as waits but are little else: they have a barrier at which data passes, and what each
    warp does there explains next to nothing of their time, which warps that come late make. With each, the share of
    warp time that it waits."""
    found = {}
    for name, one in e.code.items():
        share = e.warps.regions.get(name, 0.0)
        if share < _LEAST_WAIT or e.kinds[name] is Purpose.WAIT or not one.needed_barriers:
            continue
        if one.loads or one.copies or one.atomics or one.polls or one.waits:
            continue  # may wait for something else
        if (beyond := _beyond_work(e, name)[0]) >= _NEARLY_ALL:
            found[name] = share * beyond
    return found


def _rounds(e: Evidence, name: str) -> float:
    """How often a warp runs a region, on average over those that do."""
    cells = e.lives.cells
    here = cells.region == e.lives.region_codes[name]
    return float(cells.count[here].sum()) / max(len(np.unique(cells.track[here])), 1)


def _beyond_work(e: Evidence, name: str) -> tuple[float, float]:
    """The share of a region's time that its work does not explain, at least and at most: other warps hide part of the
    latencies, or none."""
    one = e.code[name]
    if one.loops or one.unbounded:
        return 0.0, 1.0  # how much work an instance does is not known
    took = max(median_cycles(e.lives, e.label, name), 1.0)
    # An instruction waits for its scheduler, and mostly also for the one before.
    short, long = (one.instructions * max(e.warps.per_sm / SCHEDULERS, each) for each in (LEAST_CYCLES, MOST_CYCLES))
    pipe = one.shared * one.mean_ways * e.warps.per_sm
    awaited = one.loads or any(name in after for before, after in e.followers.items() if _loads(e, before))
    own = _SHARED_CYCLES * one.shared
    cache, memory = ((ns * e.lives.cycles_per_ns if awaited else 0.0) + own for ns in (_CACHE_NS, LATENCY_NS))
    return max(1 - (max(long, pipe) + memory) / took, 0.0), max(1 - max(short, pipe, cache) / took, 0.0)


def _loads(e: Evidence, region: str) -> bool:
    return region in e.code and e.code[region].loads > 0


BARRIER_WAITS = Hypothesis(CAUSE, _judge, explains=frozenset({"too little in flight", "low occupancy"}))
