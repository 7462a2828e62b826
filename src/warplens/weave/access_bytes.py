"""The bytes that the accesses of an instance of a region move: what lanes ask for, each byte once, and the sectors."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from warplens.ptx.lane_accesses import SECTOR, LaneAccess, accessed_address
from warplens.ptx.operands import names, written_by
from warplens.ptx.thread_guards import ActiveThreads
from warplens.ptx.tree import Instruction


@dataclass(frozen=True)
class Executed:
    """An instruction on the path of an instance: how often it runs, with which threads, and its access if it is one.
    `looped` says that it is in a loop of unknown length, `depth` in how many loops it is."""

    node: Instruction
    access: LaneAccess | None
    active: ActiveThreads
    trips: int
    looped: bool
    depth: int
    uneven: tuple[bool, bool] = (True, True)
    """Whether loops of unknown length around it may run longer in some warps of a block, and in some blocks."""

    @property
    def base(self) -> str:
        """The register that its address is relative to."""
        return accessed_address(self.node).strip("[] ").partition("+")[0].strip()


def moved_and_touched(some: Sequence[Executed]) -> tuple[float, float]:
    """The bytes that accesses to global memory relative to one register ask for, and those of the sectors they touch;
    what several of them access counts once."""
    shapes = [(one.access.lanes, one.access.width) for one in some if one.access is not None and one.access.lanes]
    moved, touched = map(float, _union(tuple(dict.fromkeys(shapes)))) if shapes else (0.0, 0.0)
    for one in some:
        if one.access is not None and not one.access.lanes:
            moved += len(one.active.lanes) * one.access.width
            touched += len(one.active.lanes) * max(one.access.width, SECTOR)
    return moved, touched


@lru_cache(1024)
def _union(accesses: tuple[tuple[tuple[tuple[int, int], ...], int], ...]) -> tuple[int, int]:
    """The bytes and the bytes of sectors of accesses, each the rows and first bytes of its lanes, and its width."""
    rows = np.concatenate([np.repeat([row for row, _ in lanes], width) for lanes, width in accesses])
    at = np.concatenate([np.add.outer([at for _, at in lanes], np.arange(width)).ravel() for lanes, width in accesses])
    _, row = np.unique(rows, return_inverse=True)
    at = at - at.min()
    span = int(at.max()) + SECTOR
    return len(np.unique(row.reshape(-1) * span + at)), SECTOR * len(
        np.unique(row.reshape(-1) * span + at // SECTOR * SECTOR)
    )


def by_base(executed: Iterable[Executed]) -> list[list[Executed]]:
    """Accesses to global memory by what their addresses are relative to, loads and stores apart."""
    found: defaultdict[tuple[str, bool, int, float | None], list[Executed]] = defaultdict(list)
    for one in executed:
        if one.access is not None and one.access.space == "global":
            found[one.base, one.access.is_load, one.trips, one.active.warps].append(one)
    return list(found.values())


def load_levels(executed: Sequence[Executed]) -> int:
    """How many loads from global memory wait for one another: a load whose address another one brings is a level
    below it."""
    level: dict[str, int] = {}
    deepest = 0
    for one in executed:
        targets = written_by(one.node)
        own = max((level.get(name, 0) for name in names(one.node.arguments) - targets), default=0)
        if one.access is not None and one.access.is_load:
            at = max((level.get(name, 0) for name in names(accessed_address(one.node))), default=0)
            own = at + 1 if one.access.space == "global" else at
            deepest = max(deepest, own)
        for target in targets:
            level[target] = own
    return max(deepest, 1)
