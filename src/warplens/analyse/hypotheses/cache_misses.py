"""Do loads have two speeds in the same warp, as with cache hits and misses?"""

from __future__ import annotations

from warplens.analyse.critical_path import CRITICAL_PATH
from warplens.analyse.duration_shapes import MODES, RegionShape
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


def excess(shape: RegionShape) -> float:
    """The share of a region's time that its slow instances take beyond the fast ones."""
    two = shape.modes
    if two is None:
        return 0.0
    mean = two.slow * two.slow_share + two.fast * (1 - two.slow_share)
    return (two.slow - two.fast) * two.slow_share / mean


def _judge(e: Evidence) -> Finding:
    loads = [
        shape
        for shape in e.of(MODES).regions
        if shape.modes
        # Warps that are slow throughout, or fast throughout, are in another situation, not in another cache.
        and shape.modes.within_warps > 0.5
        and e.kinds[shape.region] is Purpose.MEMORY
        and not words_of(shape.region) & _NO_LOADS
    ]
    path = {one.region: one for one in e.of(CRITICAL_PATH).regions}
    gains = {shape.region: path[shape.region].at(excess(shape)) for shape in loads if shape.region in path}
    region = max(gains, key=lambda name: gains[name], default="")
    if not region or gains[region] < _LEAST:
        return e.refuted(CAUSE, "no load has two speeds in the same warp that matter")
    two = next(shape.modes for shape in loads if shape.region == region)
    assert two is not None
    return e.undecided(
        CAUSE,
        f"`{region}` has two speeds in the same warp: {two.fast:,.0f} cycles, and {two.slow:,.0f} cycles for "
        f"{percent(two.slow_share)} of its instances, as with cache hits and misses, or with more and less work.",
        "Compare the hit rates of an Nsight Compute report, or record the amount of work as a value; if it is the "
        "cache, improve reuse: the order of tiles or blocks, a smaller working set, or prefetching.",
        Gain.between(0.0, gains[region]),
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
