"""Regions with an atomic that warps run again and again until they get through: a lock that is tried."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from warplens.analyse.groups import reduce_by
from warplens.trace.schema import LIFE

if TYPE_CHECKING:
    from warplens.analyse.evidence import Evidence

_OFTEN = 8
"""Tries of the block that tries most."""
_UNEVEN = 4.0
"""How many times as often as another block: the last one tries as long as all others hold the lock."""
_IN_THE_LOOP = 0.5
_LITTLE = 40
"""Instructions between two tries."""
_LEAST = 0.02


def retried_regions(e: Evidence) -> list[str]:
    """The regions with atomics that are tries, the longest first.

    The weaver counts a loop that polls, but not every such loop is one that it knows, and older recordings have none of
    it where marks are inside the loop. It shows in how often blocks run the region: a few times or very often, with
    nothing between two tries. A loop that works between its atomics is none, nor one that all blocks run alike.
    """
    return [name for name in e.warps.regions if _is_retried(e, name)]


def _is_retried(e: Evidence, name: str) -> bool:
    one = e.code.get(name)
    if one is None or not one.atomics or one.polls or one.loads or one.stores or name == LIFE:
        return False
    if e.warps.regions[name] < _LEAST:
        return False
    lives, cells = e.lives, e.lives.cells
    here = cells.region == lives.region_codes[name]
    tries = np.bincount(cells.track[here], cells.count[here], len(lives))
    by_block = reduce_by(np.maximum, tries, lives.block, len(lives.blocks))
    some = by_block[by_block > 0]
    if not len(some) or some.max() < _OFTEN or some.max() < _UNEVEN * some.min():
        return False
    many = tries >= some.max() / 2
    for other in e.warps.regions:
        inside = cells.region == lives.region_codes[other]
        count = np.bincount(cells.track[inside], cells.count[inside], len(lives))
        if other != name and count[many].sum() >= _IN_THE_LOOP * tries[many].sum() and _works(e, other):
            return False
    return True


def _works(e: Evidence, name: str) -> bool:
    """Whether a region does more than look at what a try gave."""
    one = e.code.get(name)
    if one is None:
        return False  # the weaver found no instruction in it
    return bool(one.instructions > _LITTLE or one.loads or one.stores or one.copies or one.matrix or one.shared_atomics)
