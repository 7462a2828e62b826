"""The roles of warps: which of them produce what others consume, and how long each role waits in what."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable
from warplens.analyse.barrier_roles import CONSUMER, PRODUCER, WarpDuty, warp_duties
from warplens.analyse.code_counts import CodeCounts, code_of
from warplens.analyse.groups import in_groups
from warplens.analyse.inner_waits import InnerWait, inner_waits
from warplens.analyse.lifetimes import Int, Lifetimes, Mask
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.roles import WarpRole, roles_by_kernel, warp_roles
from warplens.analyse.wait_classes import WaitClass, wait_class
from warplens.trace.edges import has_barrier_records
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE
from warplens.wording import percent

_OF_ITS_OWN = 0.1


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
    own_waits: tuple[str, ...] = ()
    """Regions in which its warps wait for what they have started themselves."""
    unsure: float = 0.0
    """The share of its warps' time that they may wait beside that, inside regions that also do something else."""


@dataclass(frozen=True)
class RoleWaits:
    """The roles of one kernel variant."""

    roles: tuple[RoleWait, ...]


def role_waits(trace: Trace, *, waits: str | None = None) -> PerKernel[RoleWaits]:
    """The roles of every kernel; `waits` is a regular expression for additional regions that only wait."""
    lives = Lifetimes.of(trace)
    purpose = lives.purpose_of(waits)
    hollow = _hollow(lives)  # what only holds other regions is nothing that a warp does
    purpose = {name: one for name, one in purpose.items() if one is Purpose.WAIT or name not in hollow}
    roles, role = warp_roles(lives)
    by_role = _by_role(lives, role, len(roles), lives.waiting(waits))
    duties = _duties(trace)
    numbers = roles_by_kernel(roles)
    inner = _inner_waits(lives, role, roles, lives.waiting(waits))
    rings = {kernel: _ring(lives, kernel, [roles[at] for at in some], purpose) for kernel, some in numbers.items()}
    life = lives.finish - lives.begin
    blocks = (lives.blocks.end - lives.blocks.begin)[lives.block] if len(lives) else life
    lived, lasted = (np.bincount(role, each, len(roles)) if len(roles) else life for each in (life, blocks))
    found: dict[str, list[RoleWait]] = {label: [] for label in lives.variants}
    for number, one in enumerate(roles):
        kernel = lives.launches[int(lives.variants[one.kernel][0])].kernel
        cycles = max(float(lived[number]), 1.0)
        surely = {region: wait.surely for region, wait in inner[number].items()}
        unsure = sum(wait.at_most - wait.surely for wait in inner[number].values()) / cycles
        shares = {region: waited / cycles for region, waited in (by_role[number] | surely).items()}
        known = [duties[kernel, warp] for warp in one.warps if (kernel, warp) in duties]
        others = [roles[at] for at in numbers[one.kernel]]
        waits_inside = {roles[at] for at in numbers[one.kernel] if inner[at]}
        side = _side_by_edges({duty.role for duty in known}) if known else _side(one, others, purpose, waits_inside)
        if side == "any" and not known:
            side = rings[one.kernel].get(one, side)
        if side == PRODUCER and known and _works_like(one, others, purpose):
            side = "any"
        alive = min(cycles / max(float(lasted[number]), 1.0), 1.0)
        own = tuple(sorted({region for duty in known for region in duty.own_waits}))
        found[one.kernel].append(RoleWait(one, side, sum(shares.values()), shares, alive, own, unsure))
    return PerKernel({label: RoleWaits(tuple(some)) for label, some in found.items()})


def _inner_waits(lives: Lifetimes, role: Int, roles: Sequence[WarpRole], waiting: Mask) -> list[dict[str, InnerWait]]:
    """For each role of a kernel whose warps have several, the waits that no region shows by itself."""
    found: list[dict[str, InnerWait]] = [{} for _ in roles]
    several = {kernel: numbers for kernel, numbers in roles_by_kernel(roles).items() if len(numbers) > 1}
    if not several:
        return found
    tracks, cells = (in_groups(each, len(roles)) for each in (role, role[lives.cells.track]))
    for kernel, numbers in several.items():
        code = code_of([info for at in lives.variants[kernel].tolist() if (info := lives.launches[at].info)])
        for number in numbers if code else ():
            found[number] = inner_waits(lives, tracks[number], cells[number], code, waiting)
    return found


def _hollow(lives: Lifetimes) -> set[str]:
    """Regions that hold others, and next to nothing of their own."""
    cells, many = lives.cells, len(lives.regions)
    whole, own = (np.bincount(cells.region, each, many) for each in (cells.duration, cells.exclusive))
    return {lives.regions[code] for code in np.flatnonzero(own < _OF_ITS_OWN * whole)}


def _duties(trace: Trace) -> dict[tuple[str, int], WarpDuty]:
    """The duty of each warp of each kernel, where barriers were recorded."""
    if not has_barrier_records(trace):
        return {}
    return {(one.kernel, one.warp): one for one in warp_duties(trace)}


def _by_role(lives: Lifetimes, role: Int, roles: int, waiting: Mask) -> list[dict[str, float]]:
    """Cycles that the warps of each role spend in each region that waits, where that is not 0."""
    many = len(lives.regions)
    cells = lives.cells
    here = waiting[cells.region]
    keys, of_key = np.unique(role[cells.track[here]] * many + cells.region[here], return_inverse=True)
    cycles = np.bincount(of_key.reshape(-1), weights=cells.own[here], minlength=len(keys))
    found: list[dict[str, float]] = [{} for _ in range(roles)]
    for key, waited in zip(keys.tolist(), cycles.tolist(), strict=True):
        if waited:
            found[key // many][lives.regions[key % many]] = waited
    return found


def _side_by_edges(duties: set[str]) -> str:
    """The side of warps whose barriers say who arrived for whom; peers are on neither."""
    (first, *others) = duties
    return first if first in (PRODUCER, CONSUMER) and not others else "any"


def _works_like(role: WarpRole, roles: Sequence[WarpRole], purpose: Mapping[str, Purpose]) -> bool:
    """Whether a role does all that another one does with the data, and brings it beside that."""
    return any(
        does and does <= set(role.often) for other in roles if other is not role for does in [_works(other, purpose)]
    )


def _works(role: WarpRole, purpose: Mapping[str, Purpose]) -> set[str]:
    return {region for region in role.often if purpose.get(region) in (Purpose.WORK, Purpose.OTHER)}


def _side(
    role: WarpRole, roles: Sequence[WarpRole], purpose: dict[str, Purpose], waits_inside: Collection[WarpRole] = ()
) -> str:
    """The side of a role among those of its kernel, from what it does and what it waits in.

    A role that moves memory and does no work produces, if others wait or have no marks. A role that works consumes, if
    it waits and another role produces: what it stores itself does not make it a producer.
    """
    if _feeds(role, purpose):
        others = [other for other in roles if other is not role]
        may_wait = any(_waits(other, purpose) or other in waits_inside or is_unmarked(other) for other in others)
        return "producer" if may_wait else "any"
    feeds = any(_feeds(other, purpose) for other in roles if other is not role)
    return "consumer" if feeds and (_waits(role, purpose) or role in waits_inside) else "any"


def _ring(
    lives: Lifetimes, kernel: str, roles: Sequence[WarpRole], purpose: Mapping[str, Purpose]
) -> dict[WarpRole, str]:
    """The sides of roles that all work, where no role only moves memory: one waits for room, or brings data from
    outside the SM, and others wait for the data and take nothing but that. To bring it may be work, as to unpack it."""
    if len(roles) < 2 or any(_feeds(role, purpose) for role in roles):
        return {}
    code = code_of([info for at in lives.variants[kernel].tolist() if (info := lives.launches[at].info)])
    waits = {role: _awaited(role, purpose, code) for role in roles}
    room = [role for role in roles if WaitClass.SPACE in waits[role]]
    brings = [role for role in roles if waits[role] and any(_brings(code.get(region)) for region in role.often)]
    producers = room or [role for role in brings if role.often and all(region in code for region in role.often)]
    consumers = [role for role in roles if WaitClass.DATA in waits[role] and role not in {*room, *brings}]
    if not consumers or not producers or any(_works_like(role, consumers, purpose) for role in producers):
        return {}
    return {**dict.fromkeys(producers, PRODUCER), **dict.fromkeys(consumers, CONSUMER)}


def _awaited(role: WarpRole, purpose: Mapping[str, Purpose], code: Mapping[str, CodeCounts]) -> set[WaitClass]:
    """What a role waits for in its loop, other than barriers of the block and locks."""
    waits = [region for region in role.often if purpose.get(region) is Purpose.WAIT]
    return {wait_class(region, code.get(region)) for region in waits} & {WaitClass.SPACE, WaitClass.DATA}


def _brings(code: CodeCounts | None) -> bool:
    return code is not None and bool(code.loads or code.copies)


def is_unmarked(role: WarpRole) -> bool:
    """Whether the warps of a role left no record."""
    return role.regions == (LIFE,)


def _feeds(role: WarpRole, purpose: Mapping[str, Purpose]) -> bool:
    """Whether a role moves memory and does no work, or waits for room and does nothing else that is marked."""
    does = {purpose.get(region) for region in role.often}
    room = any(purpose.get(region) is Purpose.WAIT and wait_class(region) is WaitClass.SPACE for region in role.often)
    return bool(Purpose.MEMORY in does or room) and not does & {Purpose.WORK, Purpose.OTHER}


def _waits(role: WarpRole, purpose: dict[str, Purpose]) -> bool:
    return any(purpose.get(region) is Purpose.WAIT for region in role.often)


def roles_table(kernel: str, one: RoleWaits) -> AnswerTable:
    """Each role, its side and where it waits."""
    rows = tuple(
        (
            each.role.name,
            each.side,
            percent(each.share),
            _waits_text(each.waits) or "-",
            ", ".join(each.role.regions),
        )
        for each in one.roles
    )
    return AnswerTable(f"{kernel}: roles of warps", ("role", "side", "waits", "in", "regions"), rows)


def _waits_text(waits: Mapping[str, float]) -> str:
    return ", ".join(f"{region or '(unmarked)'} {percent(share)}" for region, share in waits.items() if share)


ROLES = Analysis("roles", run=lambda ask: role_waits(ask.trace, waits=ask.waits), table=roles_table)
