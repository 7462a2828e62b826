"""Do loads have two speeds in the same warp, as with cache hits and misses?"""

from __future__ import annotations

from warplens.analyse.duration_shapes import TwoModes, modes_of
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.region_purpose import Purpose, words_of
from warplens.wording import percent

CAUSE = "cache misses"
_NO_LOADS = {
    "store",
    "stores",
    "st",
    "stg",
    "sts",
    "stmatrix",
    "write",
    "writes",
    "issue",
    "copy",
    "cp",
    "tma",
    "atomic",
}
_LEAST = 0.05
_MOST_SLOW = 0.9
"""Where nearly all instances are slow, that is their speed, and the others are exceptions."""


def excess(two: TwoModes) -> float:
    """The share of a region's time that its slow instances take beyond the fast ones."""
    mean = two.slow * two.slow_share + two.fast * (1 - two.slow_share)
    return (two.slow - two.fast) * two.slow_share / mean


def _loads(e: Evidence, region: str) -> bool:
    """Whether a region loads: by its code, else unless its name says otherwise."""
    return e.code[region].loads > 0 if region in e.code else not words_of(region) & _NO_LOADS


def _judge(e: Evidence) -> Finding:
    found = {}
    for region, share in e.warps.regions.items():
        if share >= _LEAST and e.kinds[region] is Purpose.MEMORY and _loads(e, region):
            two = modes_of(e.lives, e.label, region)
            # Warps that are slow throughout, or fast throughout, are in another situation, not in another cache.
            if (
                two is not None
                and two.within_warps > 0.5
                and two.slow_share < _MOST_SLOW
                and share * excess(two) >= _LEAST
            ):
                found[region] = two
    if not found:
        return e.refuted(CAUSE, "no load has two speeds in the same warp that matter")
    region = max(found, key=lambda name: e.warps.regions[name] * excess(found[name]))
    two = found[region]
    return e.undecided(
        CAUSE,
        f"`{region}` has two speeds in the same warp: {two.fast:,.0f} cycles, and {two.slow:,.0f} cycles for "
        f"{percent(two.slow_share)} of its instances, as with cache hits and misses, or with more and less work.",
        "Compare the hit rates of an Nsight Compute report, or record the amount of work as a value; if it is the "
        "cache, improve reuse: the order of tiles or blocks, a smaller working set, or prefetching.",
        Gain.between(0.0, e.warps.regions[region] * excess(two)),
        region=region,
        evidence={
            "fast_cycles": two.fast,
            "slow_cycles": two.slow,
            "slow_share": two.slow_share,
            "separation": two.separation,
        },
        refuted_by="A working set that fits into the cache shows the same two speeds.",
    )


CACHE_MISSES = Hypothesis(CAUSE, _judge)
