"""Regions in which the warps of a block wait for one another, and whether the code says that they have to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warplens.analyse.code_counts import CodeCounts
from warplens.analyse.wait_classes import WaitClass

if TYPE_CHECKING:
    from warplens.analyse.evidence import Evidence

_FAR_MORE_OFTEN = 8


def barrier_regions(e: Evidence) -> list[str]:
    """The regions in which warps wait for those of their block."""
    return [region for region in e.waiting if e.wait_class(region) is WaitClass.BARRIER]


def free_regions(e: Evidence, regions: list[str]) -> list[str]:
    """Those at all of whose barriers no data passes. Where a region has a needed barrier as well, warps still meet
    there once the others are gone."""
    return [region for region in regions if _is_free(e.code.get(region))]


def either_may_go(e: Evidence, region: str) -> bool:
    """Whether the code of a recording that judged barriers in the order of the text says nothing of a barrier, but
    called one unneeded that warps pass far less often: of two of which one is enough, that was the first."""
    one = e.code.get(region)
    if one is None or one.needed_barriers or not one.unknown_barriers:
        return False
    if any(each.lengths_known for each in e.code.values()) or not any(each.unbounded for each in e.code.values()):
        return False
    others = [name for name, each in e.code.items() if each.unneeded_barriers and name in e.instances]
    return any(e.instances.get(region, 0) >= _FAR_MORE_OFTEN * e.instances[name] for name in others)


def exchanges(e: Evidence, regions: list[str]) -> bool:
    """Whether the code says that data passes between warps where they meet in some regions."""
    code = [e.code.get(region) for region in regions]
    return bool(code) and all(one is not None and one.barriers and _is_kept(one) for one in code)


def may_exchange(e: Evidence, regions: list[str]) -> bool:
    """The same, or at least that the code shows accesses at each that may be an exchange."""
    code = [e.code.get(region) for region in regions]
    return bool(code) and all(one is not None and one.needed_barriers + one.unknown_barriers > 0 for one in code)


def _is_free(one: CodeCounts | None) -> bool:
    return one is not None and 0 < one.barriers <= one.unneeded_barriers


def _is_kept(one: CodeCounts) -> bool:
    """Whether warps have to meet: at all barriers, or at one of several with nothing to do in between."""
    return one.needed_barriers >= one.barriers or bool(one.needed_barriers and one.only_waits)
