"""Do SMs idle at the end because some blocks take longer than others?"""

from __future__ import annotations

import numpy as np

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, Finding
from warplens.analyse.groups import reduce_by
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.hypotheses.serialised_section import waits_for_turn
from warplens.analyse.imbalance import IMBALANCE, Imbalance
from warplens.analyse.wait_classes import WaitClass
from warplens.analyse.waves import WAVES
from warplens.wording import duration, numbered, percent

CAUSE = "block imbalance"
_LEAST = 0.05
_LARGE = 0.15
_SHOWN = 0.5
_EVEN = 1.05
_MOSTLY = 0.8
_BY_LITTLE = 1.5
"""The longest block over the mean, up to which memory and atomics alone may make the difference."""
_OF_QUEUE = 0.2


def _judge(e: Evidence) -> Finding:
    one, grid = e.of(IMBALANCE), e.of(WAVES)
    lost = one.sm_loss - grid.quantised
    if lost < _LEAST or (one.block_factor < 1.1 and not one.slow_sms):
        return e.refuted(
            CAUSE,
            f"the longest block takes {one.block_factor:.2f} times the mean, and uneven blocks leave "
            f"{percent(max(lost, 0.0))} of SM time idle at the end",
        )
    if one.late_region in e.waiting and e.wait_class(one.late_region) is WaitClass.BARRIER:
        return e.refuted(
            CAUSE, f"the warps of late blocks wait for one of theirs at `{one.late_region}`: uneven are the warps"
        )
    if queue := _queue(e):
        return e.refuted(CAUSE, f"blocks differ by how long they wait for their turn at `{queue}`: they queue")
    if not one.slow_sms and _same_work(e, one):
        return e.refuted(
            CAUSE, "all blocks run the same instructions: what makes some of them late is no work of theirs"
        )
    what, advice = _sentences(one)
    if e.shown_life < _SHOWN:
        what += f" Their first and last records show {percent(e.shown_life)} of the blocks' lives."
    return e.supported(
        CAUSE,
        what,
        advice,
        # In the best case SMs have as many warps all the time as before the short blocks ended.
        e.gain(lost, _most(e, lost), roof=max(_most(e, lost), lost + grid.thin)),
        HIGH if one.late_blocks else MEDIUM if lost > _LARGE else LOW,
        region=one.late_region,
        blocks=one.late_blocks,
        sms=one.slow_sms,
        evidence={
            "longest_over_mean": one.block_factor,
            "median_block_ns": one.block_median_ns,
            "late_share": one.late_share,
            "sm_time_idle_at_end": one.sm_loss,
        },
        refuted_by="The same blocks in another order, long ones first, take as long.",
    )


def _most(e: Evidence, lost: float) -> float:
    """An SM whose last blocks have few warps is not idle, but not busy either; and parts of a long block run at a
    time."""
    return max(lost + (1 - lost) * e.of(WAVES).thin, lost + 0.4 * lost * (1 - lost))


def _queue(e: Evidence) -> str:
    """The region in which blocks wait for a lock, a flag or a turn, if that is what makes some of them long: without it
    they are even."""
    regions = [name for name in e.warps.regions if waits_for_turn(e, name)]
    if not regions:
        return ""
    lives = e.lives
    lasted = (lives.blocks.end - lives.blocks.begin).astype(float)
    waited = reduce_by(np.maximum, e.cycles_in(regions), lives.block, len(lives.blocks))
    rest = lasted - waited
    return regions[0] if rest.max() - rest.mean() <= _OF_QUEUE * (lasted.max() - lasted.mean()) else ""


def _same_work(e: Evidence, found: Imbalance) -> bool:
    """Whether the code shows that no block executes more than the others: regions of the same length, as often in each,
    that mostly access memory. Elsewhere a block may take the longer side of a branch, but hardly where blocks differ by
    little and all of their time may be a wait for memory."""
    moving = sum(e.fetching.values()) + sum(e.awaiting.values())
    if moving < _MOSTLY and (found.block_factor > _BY_LITTLE or _may_wait(e) < _MOSTLY):
        return False
    lives, cells = e.lives, e.lives.cells
    codes = [e.code.get(name) for name in e.warps.regions]
    if not codes or e.mostly_unmarked or any(one is None or one.differs_by_block or one.polls for one in codes):
        return False
    many = len(lives.regions)
    ran = np.bincount(lives.block[cells.track] * many + cells.region, cells.count, len(lives.blocks) * many)
    by_block = ran.reshape(-1, many)
    return bool((by_block.max(axis=0) <= _EVEN * np.median(by_block, axis=0)).all())


def _may_wait(e: Evidence) -> float:
    """The share of warp time in code that waits for memory or for atomics, also outside all regions."""
    waits = (name for name in e.shares if name in e.code and e.code[name].waits_for_memory)
    return sum(e.shares[name] for name in {*waits, *e.fetching, *e.awaiting})


def _sentences(one: Imbalance) -> tuple[str, str]:
    if one.slow_sms and not one.late_blocks:
        return (
            f"Blocks on {numbered('SM', one.slow_sms)} take longer than elsewhere (up to "
            f"{percent(one.sm_factor - 1)} more), and the other SMs wait for them at the end.",
            "Check what shares those SMs (another stream, a debugger, MPS), or let blocks take work dynamically.",
        )
    if one.late_blocks:
        where = f"; the difference is in `{one.late_region}`" if one.late_region else ""
        return (
            f"{percent(one.late_share)} of the blocks last {duration(one.late_median_ns)} where the median block lasts "
            f"{duration(one.block_median_ns)} ({numbered('block', one.late_blocks, 6)}{where}), and the other SMs "
            f"idle until they end.",
            "Start the long blocks first, split their work, or make the kernel persistent with a work queue.",
        )
    return (
        f"Blocks are uneven (the longest is {percent(one.block_factor - 1)} above the mean), and SMs idle at the "
        f"end until the last one is done.",
        "Use smaller blocks of work towards the end, or a persistent kernel with a work queue.",
    )


BLOCK_BALANCE = Hypothesis(CAUSE, _judge, explains=frozenset({"last wave", "cache misses"}), about_grid=True)
