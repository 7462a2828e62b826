"""All families of modelled kernels, and what their first finding may say where nothing is to repair."""

from __future__ import annotations

from tests.support.modelled_authors import AUTHOR_FAMILIES
from tests.support.modelled_barriers import BARRIER_FAMILIES
from tests.support.modelled_kernels import FAMILIES as FIRST_FAMILIES
from warplens.analyse.finding import Finding

FAMILIES = FIRST_FAMILIES | BARRIER_FAMILIES | AUTHOR_FAMILIES
NO_REPAIR = 0.08
"""A repair that gains less was none."""
_SMALL = 0.05
"""What the first finding about a healthy kernel may promise at least."""


def harmless(first: Finding, remains: tuple[str, ...] = ()) -> bool:
    return first.kind in ("nothing to fix", "undecided", *remains) or first.gain.low <= _SMALL
