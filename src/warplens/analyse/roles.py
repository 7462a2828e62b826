"""Roles of warps: the warps of a kernel that run the same set of regions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from warplens.analyse.lifetimes import Int, Lifetimes, Mask
from warplens.wording import numbered


@dataclass(frozen=True)
class WarpRole:
    """The warps of one role, by their number in the block, and the regions that they run. `kernel` is a variant."""

    kernel: str
    warps: tuple[int, ...]
    regions: tuple[str, ...]
    often: tuple[str, ...] = ()
    """Those that its warps run at least a quarter as often as the most frequent one: what they do in their loop."""

    @property
    def name(self) -> str:
        return numbered("warp", self.warps)


def warp_roles(lives: Lifetimes) -> tuple[tuple[WarpRole, ...], Int]:
    """All roles, and the role of each track.

    A warp number has one role per variant of a kernel, with the regions that it runs in any block. If a block that
    skips a region had another role, its imbalance would go unnoticed.
    """
    if not len(lives):
        return (), np.empty(0, np.int64)
    names, width, many = list(lives.variants), int(lives.warp.max()) + 1, len(lives.regions)
    seats, seat = np.unique(lives.variant * width + lives.warp, return_inverse=True)
    seat = seat.reshape(-1)
    cells = lives.cells
    # Only what warps run: a table of all warps and regions would be larger than the trace.
    ran, cell = np.unique(seat[cells.track] * many + cells.region, return_inverse=True)
    count = np.bincount(cell.reshape(-1), cells.count, len(ran)).astype(np.int64)
    bounds = np.searchsorted(ran, np.arange(len(seats) + 1) * many)
    codes = ran % max(many, 1)
    role_at: dict[tuple[int, bytes], int] = {}
    members: list[list[int]] = []
    of_seat = np.empty(len(seats), np.int64)
    for at, number in enumerate(seats.tolist()):
        key = number // width, codes[bounds[at] : bounds[at + 1]].tobytes()
        of_seat[at] = role = role_at.setdefault(key, len(role_at))
        if role == len(members):
            members.append([])
        members[role].append(at)
    roles = []
    for some in members:
        kernel, _ = divmod(int(seats[some[0]]), width)
        regions = [lives.regions[code] for code in codes[bounds[some[0]] : bounds[some[0] + 1]]]
        often = _is_often(np.sum([count[bounds[at] : bounds[at + 1]] for at in some], axis=0))
        roles.append(
            WarpRole(
                names[kernel],
                tuple((seats[some] % width).tolist()),
                tuple(regions),
                tuple(region for region, many_times in zip(regions, often, strict=True) if many_times),
            )
        )
    return tuple(roles), of_seat[seat]


def roles_by_kernel(roles: Sequence[WarpRole]) -> dict[str, list[int]]:
    """The numbers of the roles of each variant."""
    found: dict[str, list[int]] = {}
    for number, one in enumerate(roles):
        found.setdefault(one.kernel, []).append(number)
    return found


def _is_often(count: Int) -> Mask:
    return np.asarray((count > 0) & (4 * count >= count.max(initial=0)))
