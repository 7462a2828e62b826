"""Waits of a role that no region shows by itself: inside a region that does more, or outside all regions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from warplens.analyse.code_counts import LEAST_CYCLES, MOST_CYCLES, CodeCounts
from warplens.analyse.lifetimes import Int, Lifetimes, Mask
from warplens.trace.schema import LIFE

OUTSIDE = ""


class InnerWait(NamedTuple):
    """Cycles that warps surely wait, and at most."""

    surely: float
    at_most: float


def inner_waits(
    lives: Lifetimes, tracks: Int, here: Int, code: Mapping[str, CodeCounts], waiting: Mask
) -> dict[str, InnerWait]:
    """How long the warps of one role wait for an mbarrier or copies, by the region that holds the wait; `tracks` and
    `here`, the cells, are those of the role.

    In a region without loops of unknown length, that is what its instructions do not explain. Where no region of the
    role has a wait and the code outside does, it is the time outside. A role whose waits are marked has none of these.
    """
    cells = lives.cells
    codes = np.unique(cells.region[here])
    if waiting[codes].any() or [lives.regions[number] for number in codes.tolist()] == [LIFE]:
        return {}
    found = {}
    for number in codes.tolist():
        one = code.get(lives.regions[number])
        if one is not None and one.waits and not (one.loops or one.unbounded):
            mine = here[cells.region[here] == number]
            spent, ran = float(cells.own[mine].sum()), one.instructions * float(cells.count[mine].sum())
            found[lives.regions[number]] = InnerWait(
                *(max(spent - each * ran, 0.0) for each in (MOST_CYCLES, LEAST_CYCLES))
            )
    if found or any(one.waits for name in codes.tolist() if (one := code.get(lives.regions[name]))):
        return found
    outside = code.get(OUTSIDE)
    if outside is None or not outside.waits:
        return {}
    lived = float((lives.finish[tracks] - lives.begin[tracks]).sum())
    spent = max(lived - float(cells.own[here].sum()), 0.0)
    return {OUTSIDE: InnerWait(spent, spent)}
