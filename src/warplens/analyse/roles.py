"""Roles of warps: the warps of a kernel that run the same set of regions."""

from __future__ import annotations

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
    names = list(lives.variants)
    seat = lives.variant * (int(lives.warp.max()) + 1) + lives.warp
    many = len(lives.regions)
    cells = lives.cells
    ran = seat[cells.track] * many + cells.region
    count = np.bincount(ran, cells.count, (int(seat.max()) + 1) * many).astype(np.int64).reshape(-1, many)
    used = count > 0
    role_at: dict[tuple[int, bytes], int] = {}
    of_seat = np.full(len(used), -1, np.int64)
    members: list[list[int]] = []
    for number in np.unique(seat).tolist():
        key = (number // (int(lives.warp.max()) + 1), used[number].tobytes())
        role = role_at.setdefault(key, len(role_at))
        if role == len(members):
            members.append([])
        members[role].append(number)
        of_seat[number] = role
    width = int(lives.warp.max()) + 1
    roles = tuple(
        WarpRole(
            names[seats[0] // width],
            tuple(at % width for at in seats),
            tuple(lives.regions[code] for code in np.flatnonzero(used[seats[0]])),
            tuple(lives.regions[code] for code in np.flatnonzero(_is_often(count[seats].sum(axis=0)))),
        )
        for seats in members
    )
    return roles, of_seat[seat]


def _is_often(count: Int) -> Mask:
    return np.asarray((count > 0) & (4 * count >= count.max(initial=0)))
