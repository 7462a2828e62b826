"""How much time warps wait, which warps wait, and for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, region_table
from warplens.analyse.finding import Finding
from warplens.analyse.lifetimes import Int, Lifetimes, Mask
from warplens.analyse.overlap import OVERLAP, Overlap
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.producers import Matches, match_waits
from warplens.analyse.region_purpose import Purpose, purposes
from warplens.analyse.roles import WarpRole, warp_roles
from warplens.trace.model import Trace
from warplens.wording import percent

UNMARKED = "(nothing marked)"


@dataclass(frozen=True)
class RoleWait:
    """One role: the share of its warps' time spent waiting, and its side: `producer` (moves memory and does no marked
    work), `consumer` (works and moves no memory) or `any`."""

    role: WarpRole
    side: str
    share: float


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
    kinds = purposes(lives.regions, waits)
    found = matches or match_waits(lives, kinds)
    roles, role = warp_roles(lives)
    waiting = np.array([kind is Purpose.WAIT for kind in kinds], bool)
    per_track = lives.sum_per_track(lives.own * waiting[lives.region])
    answers = {}
    for kernel in lives.kernels:
        mine = lives.tracks_of(kernel)
        answers[kernel] = _of_kernel(lives, kernel, mine, kinds, found, roles, role, per_track)
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
) -> Waits:
    life = lives.finish - lives.begin
    warp_cycles = max(float(life[mine].sum()), 1.0)
    purpose = dict(zip(lives.regions, kinds, strict=True))
    of_roles = []
    for number, one in enumerate(roles):
        if one.kernel == kernel:
            member = role == number
            share = float(per_track[member].sum() / max(float(life[member].sum()), 1.0))
            of_roles.append(RoleWait(one, _side(one, purpose), share))
    return Waits(
        share=float(per_track[mine].sum() / warp_cycles),
        producer=max((each.share for each in of_roles if each.side == "producer"), default=0.0),
        consumer=max((each.share for each in of_roles if each.side == "consumer"), default=0.0),
        roles=tuple(of_roles),
        regions=_regions(lives, mine, found, warp_cycles),
    )


def _side(role: WarpRole, purpose: dict[str, Purpose]) -> str:
    does = {purpose[region] for region in role.regions}
    if Purpose.MEMORY in does and not does & {Purpose.WORK, Purpose.OTHER}:
        return "producer"
    return "consumer" if Purpose.WORK in does and Purpose.MEMORY not in does else "any"


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


def wait_findings(answer: PerKernel[Waits], overlaps: PerKernel[Overlap]) -> list[Finding]:
    """Waiting that nothing hides. The gain is the SM time in which every marked warp waits."""
    out = []
    for kernel, one in answer.kernels.items():
        bubble = overlaps[kernel].waiting
        if not one.regions or bubble <= 0:
            continue
        top = one.regions[0]
        target, share = next(iter(top.waits_for.items()))
        sides = ""
        if one.producer or one.consumer:
            sides = f" Producers wait {percent(one.producer)} of their time, consumers {percent(one.consumer)}."
        worst = max(one.roles, key=lambda each: each.share)
        awaited = f"`{target}`" if target != UNMARKED else "code that is not marked"
        portion = "all of it" if share > 0.9995 else f"{percent(share)} of it"
        out.append(
            Finding(
                kind="waits",
                what=f"For {percent(bubble)} of the SM time every marked warp waits, mostly in `{top.region}`, "
                f"{portion} for {awaited}.{sides}",
                advice=_advice(target, one),
                gain=bubble,
                kernel=kernel,
                region=top.region,
                warps=worst.role.warps,
                evidence={
                    "all_wait": bubble,
                    "wait_share_of_warp_time": one.share,
                    "producer_wait": one.producer,
                    "consumer_wait": one.consumer,
                    "waits_for": target,
                    "waits_for_share": share,
                    "matched_by_values": top.by_key,
                },
            )
        )
    return out


def _advice(target: str, one: Waits) -> str:
    if target == UNMARKED:
        return "Mark what the warps wait for (the load, the arrive, another kernel's part), or start it earlier."
    if one.consumer > one.producer:
        return f"The consumers starve: add pipeline stages or producer warps, or make `{target}` faster."
    if one.producer > one.consumer:
        return f"The producers are blocked: free stages earlier, or make `{target}` faster."
    return f"Make `{target}` shorter or start it earlier, or put more independent work between it and the wait."


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
    findings=lambda answer, ask: wait_findings(answer, ask.of(OVERLAP)),
    table=waits_table,
)
