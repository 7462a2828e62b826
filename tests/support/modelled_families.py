"""All families of modelled kernels, and what their first finding may say where nothing is to repair."""

from __future__ import annotations

from collections import Counter

from tests.support.modelled_authors import AUTHOR_FAMILIES
from tests.support.modelled_barriers import BARRIER_FAMILIES
from tests.support.modelled_kernels import FAMILIES as FIRST_FAMILIES
from tests.support.modelled_kernels import Planted
from tests.support.modelled_mixes import MIXED_FAMILIES
from tests.support.modelled_strangers import STRANGERS
from warplens.analyse.finding import UNDECIDED, UNMARKED_TIME, Finding

FAMILIES = FIRST_FAMILIES | BARRIER_FAMILIES | AUTHOR_FAMILIES | MIXED_FAMILIES | STRANGERS
NO_REPAIR = 0.08
"""A repair that gains less was none."""
_SMALL = 0.05
"""What the first finding about a healthy kernel may promise at least."""


def verdicts(planted: Planted, broken: Finding, repaired: Finding | None, gain: float | None) -> Counter[str]:
    """What is right and wrong about the first findings of a kernel and of its repair, which gains so much; `open`
    counts what is left undecided or unmarked."""
    found: Counter[str] = Counter()
    if repaired is not None:
        found["healthy"] += 1
        found["quiet"] += harmless(repaired, planted.remains)
    if planted.cause and (gain is None or gain >= NO_REPAIR):
        named = broken.kind in (planted.cause, *planted.also)
        found["broken"] += 1
        found["named"] += named
        found["open"] += broken.kind in (UNDECIDED, UNMARKED_TIME)
        if named and gain is not None:
            found["gains"] += 1
            found["inside"] += broken.gain.low <= gain <= broken.gain.high
    else:
        found["healthy"] += 1
        found["quiet"] += harmless(broken)
    return found


def harmless(first: Finding, remains: tuple[str, ...] = ()) -> bool:
    return first.kind in ("nothing to fix", "undecided", *remains) or first.gain.low <= _SMALL
