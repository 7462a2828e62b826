"""Imbalance of work between the warps of a role, between blocks and between SMs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, fact_table
from warplens.analyse.code_counts import merged_code
from warplens.analyse.groups import reduce_by
from warplens.analyse.kernel_lives import each_variant
from warplens.analyse.lifetimes import Array, Float, Int, Lifetimes, Mask
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.roles import WarpRole, roles_by_kernel, warp_roles
from warplens.analyse.wait_classes import WaitClass, wait_class
from warplens.record.block_lives import BlockLives
from warplens.trace.model import Trace
from warplens.wording import duration, percent

_MAX_NAMED = 64
_LATE = 1.2
_FAR = 5.0
_LONG_WAIT = 0.1


@dataclass(frozen=True)
class RoleBalance:
    """Work (time outside waits) of the warps of one role, block by block.

    `factor` is the busiest warp's work over the mean, averaged over blocks. `loss` is the share of the blocks' time
    between the mean and the busiest. `busiest` lists warp numbers, furthest above the mean first.
    """

    role: WarpRole
    factor: float
    loss: float
    busiest: tuple[int, ...]
    region: str


@dataclass(frozen=True)
class Imbalance:
    """`block_factor` is the longest block over the mean, averaged over launches. `sm_loss` is the share of SM time
    between an SM's last block and the kernel's end. Late blocks last at least 1.2 times the median, and exceed it by
    five robust standard deviations."""

    roles: tuple[RoleBalance, ...]
    block_median_ns: float
    block_factor: float
    late_blocks: tuple[int, ...]
    late_share: float
    late_region: str
    late_median_ns: float
    sm_loss: float
    slow_sms: tuple[int, ...]
    sm_factor: float
    launches: int


def imbalance(trace: Trace, *, waits: str | None = None) -> PerKernel[Imbalance]:
    """Measure the imbalance of every kernel; `waits` is a regular expression for regions that only wait."""
    lives = Lifetimes.of(trace)
    waiting = lives.waiting(waits)
    roles, role = warp_roles(lives)
    numbers = roles_by_kernel(roles)
    code = merged_code(trace)
    barriers = waiting & np.array(
        [wait_class(name, code.get(name)) is WaitClass.BARRIER for name in lives.regions], bool
    )
    found = {}
    for label, own in each_variant(lives):
        members = {number: roles[number] for number in numbers[label]}
        meeting = _meeting(own, label, list(members.values()), barriers)
        found[label] = _of_variant(own, waiting, members, role[own.tracks], meeting)
    return PerKernel(found)


def _meeting(lives: Lifetimes, kernel: str, own: Sequence[WarpRole], barriers: Mask) -> WarpRole | None:
    """All warps of a variant as one role, if warps of different roles wait long for one another at a barrier."""
    shared = set.intersection(*(set(one.regions) for one in own)) if len(own) > 1 else set()
    codes = [code for code in map(lives.region_codes.__getitem__, shared) if barriers[code]]
    if not codes:
        return None
    cells = lives.cells
    waited = cells.own[np.isin(cells.region, codes)].sum()
    lived = (lives.finish - lives.begin).sum()
    if waited < _LONG_WAIT * lived:
        return None
    regions = dict.fromkeys(region for one in own for region in one.regions)
    return WarpRole(kernel, tuple(sorted(warp for one in own for warp in one.warps)), tuple(regions))


def _of_variant(
    lives: Lifetimes, waiting: Mask, roles: Mapping[int, WarpRole], role: Int, meeting: WarpRole | None
) -> Imbalance:
    """`lives` are those of the variant, `role` has the number of each track's role."""
    cells, launches = lives.cells, range(len(lives.launches))
    at_work: Float = (cells.own * ~waiting[cells.region]).astype(np.float64)
    work = np.bincount(cells.track, weights=at_work, minlength=len(lives)).astype(np.float64)
    parts = [lives.all_blocks_of(at) for at in launches]
    each = [part.end - part.begin for part in parts]
    late_parts = [_late(one) for one in each]
    medians = [float(np.median(one)) for one in each]
    factors = [float(one.max() / max(one.mean(), 1)) for one in each]
    lasted, late = np.concatenate(each), np.concatenate(late_parts)
    slow, sm_factor = _slow_sms(np.concatenate([part.sm for part in parts]), lasted)
    numbers = np.concatenate([part.number for part in parts])[late]
    named = numbers[np.argsort(-lasted[late], kind="stable")]
    balances = [
        _balance(lives, work, at_work, one, role == number) for number, one in roles.items() if len(one.warps) > 1
    ]
    if meeting is not None:
        balances.append(_balance(lives, work, at_work, meeting, np.ones(len(lives), bool)))
    return Imbalance(
        roles=tuple(balances),
        block_median_ns=float(np.median(medians)),
        block_factor=float(np.mean(factors)),
        late_blocks=tuple(dict.fromkeys(named.tolist()))[:_MAX_NAMED],
        late_share=float(late.mean()),
        late_region=_late_region(lives, parts, late_parts),
        late_median_ns=float(np.median(lasted[late])) if late.any() else 0.0,
        sm_loss=float(np.mean([_sm_loss(lives, at) for at in launches])),
        slow_sms=slow,
        sm_factor=sm_factor,
        launches=len(launches),
    )


def _balance(lives: Lifetimes, work: Float, at_work: Float, role: WarpRole, member: Mask) -> RoleBalance:
    """Compare each block's busiest warp with the mean of its role."""
    tracks = np.flatnonzero(member)
    blocks, group = np.unique(lives.block[tracks], return_inverse=True)
    group = group.reshape(-1)
    most = reduce_by(np.maximum, work[tracks], group, len(blocks))
    mean = np.bincount(group, weights=work[tracks]) / np.bincount(group)
    block_cycles = (lives.blocks.end - lives.blocks.begin)[blocks]
    above = work[tracks] - mean[group]
    by_warp = np.bincount(lives.warp[tracks], weights=above) / np.maximum(np.bincount(lives.warp[tracks]), 1)
    margin = 0.05 * float(mean.mean())
    busiest = [int(warp) for warp in np.argsort(-by_warp, kind="stable") if by_warp[warp] > margin]
    return RoleBalance(
        role=role,
        factor=float(np.mean(most / np.maximum(mean, 1))),
        loss=float((most - mean).sum() / max(block_cycles.sum(), 1)),
        busiest=tuple(busiest[:_MAX_NAMED]),
        region=_uneven_region(lives, at_work, tracks, group, most, work),
    )


def _uneven_region(lives: Lifetimes, at_work: Float, tracks: Int, group: Int, most: Array, work: Float) -> str:
    """The region in which the busiest warps spend most more than the others of their role."""
    busiest = tracks[work[tracks] == most[group]]
    return _difference(lives, at_work, busiest, np.setdiff1d(tracks, busiest))


def _difference(lives: Lifetimes, weight: Float | Int, some: Int, others: Int) -> str:
    """The region in which some tracks spend most more than others; `weight` has one number per cell."""
    if not len(some) or not len(others):
        return ""
    kind = np.zeros(len(lives), np.int64)
    kind[some], kind[others] = 1, 2
    many = len(lives.regions)
    cells = lives.cells
    totals = np.bincount(kind[cells.track] * many + cells.region, weight, 3 * many).reshape(3, many)
    apart = totals[1] / len(some) - totals[2] / len(others)
    at = int(apart.argmax())
    return lives.regions[at] if apart[at] > 0 else ""


def _late(lasted: Int) -> Mask:
    """Blocks that last far longer than the median of their launch."""
    middle = float(np.median(lasted))
    spread = 1.4826 * float(np.median(np.abs(lasted - middle)))
    return np.asarray((lasted > _LATE * middle) & (lasted > middle + _FAR * spread))


def _late_region(lives: Lifetimes, parts: list[BlockLives], late_parts: list[Mask]) -> str:
    """The region in which late blocks spend most more than the others, as far as both were recorded."""
    late = np.zeros(len(lives.blocks), bool)
    for at, (part, chosen) in enumerate(zip(parts, late_parts, strict=True)):
        of = lives.blocks_of(at)
        late[of] = np.isin(lives.blocks.number[of], part.number[chosen])
    if not late.any():
        return ""
    some, rest = (np.flatnonzero(chosen[lives.block]) for chosen in (late, ~late))
    return _difference(lives, lives.cells.exclusive, some, rest)


def _slow_sms(sm: Int, lasted: Int) -> tuple[tuple[int, ...], float]:
    """SMs, of those with at least two blocks, whose blocks take far longer than on the other SMs."""
    count = np.bincount(sm)
    seen = np.flatnonzero(count >= 2)
    if len(seen) < 8:
        return (), 1.0
    mean: Float = np.bincount(sm, weights=lasted)[seen] / count[seen]
    middle = float(np.median(mean))
    spread = 1.4826 * float(np.median(np.abs(mean - middle)))
    slow = seen[(mean > 1.1 * middle) & (mean > middle + _FAR * spread)]
    return tuple(slow.tolist()[:_MAX_NAMED]), float(mean.max() / max(middle, 1))


def _sm_loss(lives: Lifetimes, at: int) -> float:
    """The time from an SM's last block to the kernel's end, averaged over the SMs that ran blocks."""
    blocks = lives.all_blocks_of(at)
    sms, index = np.unique(blocks.sm, return_inverse=True)
    last = reduce_by(np.maximum, blocks.end, index.reshape(-1), len(sms))
    return float((last.max() - last).mean() / lives.launches[at].duration_ns)


def imbalance_table(kernel: str, one: Imbalance) -> AnswerTable:
    """How evenly blocks, SMs and the warps of each role are loaded."""
    facts = [
        ("median block", duration(one.block_median_ns)),
        ("longest block over the mean", f"{one.block_factor:.2f}"),
        ("late blocks", ", ".join(map(str, one.late_blocks[:12])) or "none"),
        ("SM time idle at the end", percent(one.sm_loss)),
        ("slow SMs", ", ".join(map(str, one.slow_sms[:12])) or "none"),
    ]
    for balance in one.roles:
        factor = f"{balance.factor:.2f} ({percent(balance.loss)} lost)"
        facts.append((f"{balance.role.name}: busiest over mean", factor))
    return fact_table(f"{kernel}: balance", facts)


IMBALANCE = Analysis(
    "imbalance", run=lambda ask: imbalance(ask.trace, waits=ask.waits), table=imbalance_table, needs_timeline=False
)
