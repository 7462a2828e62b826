"""How much time warps wait, which warps wait, and for what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, region_table
from warplens.analyse.lifetimes import Float, Int, Lifetimes, Mask
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.producers import Matches, match_waits
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.roles import WarpRole, warp_roles
from warplens.trace.model import Trace
from warplens.wording import percent

UNMARKED = "(nothing marked)"


@dataclass(frozen=True)
class RoleWait:
    """One role: the share of its warps' time spent waiting, in all and in each region, and its side: `producer` (moves
    memory and does no marked work), `consumer` (works, and waits for producers) or `any`."""

    role: WarpRole
    side: str
    share: float
    waits: Mapping[str, float] = field(default_factory=dict)
    life: float = 1.0
    """How long its warps live, as a share of their blocks' time."""


@dataclass(frozen=True)
class RegionWait:
    """One waiting region: its share of all warp time, and how that divides among the regions waited for.

    `by_key` is the share of its matches that were made by values rather than by time.
    """

    region: str
    share: float
    waits_for: Mapping[str, float]
    by_key: float


@dataclass(frozen=True)
class Waits:
    """`share` is the waiting share of warp time; `producer` and `consumer` the same for the two sides of a pipeline."""

    share: float
    producer: float
    consumer: float
    roles: tuple[RoleWait, ...]
    regions: tuple[RegionWait, ...]


def waits(trace: Trace, *, waits: str | None = None, matches: Matches | None = None) -> PerKernel[Waits]:
    """Measure the waits of every kernel; `waits` is a regular expression for additional regions that only wait."""
    lives = Lifetimes.of(trace)
    kinds = lives.purposes(waits)
    found = matches or match_waits(lives, kinds)
    roles, role = warp_roles(lives)
    waiting = np.array([kind is Purpose.WAIT for kind in kinds], bool)
    per_track = lives.sum_per_track(lives.own * waiting[lives.region])
    by_role = _by_role(lives, role, len(roles), waiting)
    answers = {}
    for kernel in lives.variants:
        mine = lives.tracks_of(kernel)
        answers[kernel] = _of_kernel(lives, kernel, mine, kinds, found, roles, role, per_track, by_role)
    return PerKernel(answers)


def _of_kernel(
    lives: Lifetimes,
    kernel: str,
    mine: Mask,
    kinds: list[Purpose],
    found: Matches,
    roles: tuple[WarpRole, ...],
    role: Int,
    per_track: Int,
    by_role: Float,
) -> Waits:
    life = lives.finish - lives.begin
    warp_cycles = max(float(life[mine].sum()), 1.0)
    purpose = dict(zip(lives.regions, kinds, strict=True))
    of_roles = []
    mine_only = [one for one in roles if one.kernel == kernel]
    for number, one in enumerate(roles):
        if one.kernel == kernel:
            lived = max(float(life[role == number].sum()), 1.0)
            waited = by_role[number]
            shares = {lives.regions[code]: float(waited[code] / lived) for code in np.flatnonzero(waited)}
            blocks = float((lives.blocks.end - lives.blocks.begin)[lives.block[role == number]].sum())
            side = _side(one, mine_only, purpose)
            of_roles.append(RoleWait(one, side, sum(shares.values()), shares, min(lived / max(blocks, 1.0), 1.0)))
    return Waits(
        share=float(per_track[mine].sum() / warp_cycles),
        producer=max((each.share for each in of_roles if each.side == "producer"), default=0.0),
        consumer=max((each.share for each in of_roles if each.side == "consumer"), default=0.0),
        roles=tuple(of_roles),
        regions=_regions(lives, mine, found, warp_cycles),
    )


def _by_role(lives: Lifetimes, role: Int, roles: int, waiting: Mask) -> Float:
    """Cycles that the warps of each role spend in each region that waits."""
    many = len(lives.regions)
    rows = np.flatnonzero(waiting[lives.region] & lives.is_span)
    key = role[lives.of_row[rows]] * many + lives.region[rows]
    found: Float = np.bincount(key, weights=lives.own[rows], minlength=roles * many).astype(np.float64)
    return found.reshape(roles, many)


def _side(role: WarpRole, roles: Sequence[WarpRole], purpose: dict[str, Purpose]) -> str:
    """The side of a role among those of its kernel, from what it does and what it waits in.

    A role that moves memory and does no work produces, if others wait. A role that works consumes, if it waits and
    another role produces: what it stores itself does not make it a producer.
    """
    if _feeds(role, purpose):
        return "producer" if any(_waits(other, purpose) for other in roles if other is not role) else "any"
    feeds = any(_feeds(other, purpose) for other in roles if other is not role)
    return "consumer" if feeds and _waits(role, purpose) else "any"


def _feeds(role: WarpRole, purpose: dict[str, Purpose]) -> bool:
    does = {purpose[region] for region in role.often}
    return Purpose.MEMORY in does and not does & {Purpose.WORK, Purpose.OTHER}


def _waits(role: WarpRole, purpose: dict[str, Purpose]) -> bool:
    return any(purpose[region] is Purpose.WAIT for region in role.often)


def _regions(lives: Lifetimes, mine: Mask, found: Matches, warp_cycles: float) -> tuple[RegionWait, ...]:
    here = mine[lives.of_row[found.wait]]
    wait, producer, by_key = found.wait[here], found.producer[here], found.by_key[here]
    many = len(lives.regions)
    target = np.where(producer >= 0, lives.region[np.maximum(producer, 0)], many).astype(np.int64)
    time = np.bincount(
        lives.region[wait] * (many + 1) + target, weights=lives.exclusive[wait], minlength=many * (many + 1)
    )
    time = time.reshape(many, many + 1)
    keyed = np.bincount(lives.region[wait], weights=by_key, minlength=many)
    matched = np.bincount(lives.region[wait], weights=producer >= 0, minlength=many)
    out = []
    for code in np.argsort(-time.sum(axis=1), kind="stable").tolist():
        total = float(time[code].sum())
        if total <= 0:
            break
        ordered = np.argsort(-time[code], kind="stable").tolist()
        shares = {
            lives.regions[at] if at < many else UNMARKED: float(time[code][at] / total)
            for at in ordered
            if time[code][at]
        }
        ratio = float(keyed[code] / matched[code]) if matched[code] else 0.0
        out.append(RegionWait(lives.regions[code], total / warp_cycles, shares, ratio))
    return tuple(out)


def waits_table(kernel: str, one: Waits) -> AnswerTable:
    """Each waiting region's share of warp time, and what it waits for."""
    title = f"{kernel}: {percent(one.share)} of warp time waits"
    if one.producer or one.consumer:
        title += f" (producers {percent(one.producer)}, consumers {percent(one.consumer)})"
    return region_table(
        title,
        one.regions,
        ("share", lambda row: percent(row.share)),
        ("waits for", lambda row: ", ".join(f"{n} {percent(s)}" for n, s in list(row.waits_for.items())[:3])),
        ("matched by values", lambda row: percent(row.by_key)),
    )


WAITS = Analysis(
    "waits",
    run=lambda ask: waits(ask.trace, waits=ask.waits, matches=ask.matches),
    table=waits_table,
)
