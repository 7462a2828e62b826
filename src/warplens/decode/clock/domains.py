"""Find clock domains: groups of SMs that share a clock.

On the H200 the SMs of a GPC share a clock: their readings agree to within noise, while those of other GPCs are hundreds
of thousands of cycles apart and, under load, run at another rate. So the anchors of all SMs of a GPC belong to one
clock. The driver does not report which SMs belong together, so it is inferred from the clocks.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

_APART = (20_000.0, 1_500.0, 250.0)
"""The minimum distance in cycles between two clocks, from the coarsest to the finest look."""
LOOKS = len(_APART)
_WIDE = 4.0
"""A domain is divided with the next finer limit if it is wider than this many times that limit."""
_EARLY = 0.1
"""The initial share of a launch's duration whose anchors are used to compare the clocks of SMs."""


def ahead(
    clock: Int64, ns: Int64, member: Int64, group: Int64, slope: Float64
) -> tuple[Float64, npt.NDArray[np.bool_]]:
    """By how many cycles each unit's clock is ahead at its group's first anchor, and whether that is exact.

    It is exact if the unit has an anchor early in the launch. `slope` is each unit's mean rate.
    """
    n, groups = len(group), int(group.max()) + 1
    first, last = np.full(groups, np.iinfo(np.int64).max), np.zeros(groups, np.int64)
    np.minimum.at(first, group[member], ns)
    np.maximum.at(last, group[member], ns)
    passed = (ns - first[group[member]]).astype(np.float64)
    own_first = np.full(n, np.inf)
    np.minimum.at(own_first, member, passed)
    limit = _EARLY * (last - first)[group]
    early = passed <= np.maximum(own_first, limit)[member]
    member, clock, passed = member[early], clock[early], passed[early]
    rate = _early_rates(clock, passed, member, group, 1.0 / slope)
    reading = clock - passed * rate[group[member]]
    order = np.lexsort((reading, member))
    bounds = np.searchsorted(member[order], np.arange(n + 1))
    return reading[order][(bounds[:-1] + bounds[1:] - 1) // 2], own_first <= limit


def _early_rates(clock: Int64, passed: Float64, member: Int64, group: Int64, mean: Float64) -> Float64:
    """Cycles per ns of each group's clocks at its start, before the load slows them down."""
    n, groups = len(group), int(group.max()) + 1
    count = np.maximum(np.bincount(member, minlength=n), 1)
    origin = np.zeros(n, np.int64)
    origin[member] = clock
    x = passed - (np.bincount(member, passed, n) / count)[member]
    y = (clock - origin[member]).astype(np.float64)
    y -= (np.bincount(member, y, n) / count)[member]
    sxx, sxy = np.bincount(group[member], x * x, groups), np.bincount(group[member], x * y, groups)
    usual = np.bincount(group, mean, groups) / np.bincount(group, minlength=groups)
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = np.where(sxx > 0, sxy / sxx, usual)
    return np.where((rate > 0.5 * usual) & (rate < 2 * usual), rate, usual)


def grouped(lead: Float64, sure: npt.NDArray[np.bool_], group: Int64) -> Int64:
    """Find domains with the coarsest limit that separates the clocks.

    SMs that share a clock have nearly equal readings where these are `sure`; other readings may be further off.
    """
    found = domains(lead, group, 0)
    low, high = np.full(len(lead), np.inf), np.full(len(lead), -np.inf)
    for look in range(1, LOOKS):
        low.fill(np.inf)
        high.fill(-np.inf)
        np.minimum.at(low, found[sure], lead[sure])
        np.maximum.at(high, found[sure], lead[sure])
        wide = (high - low)[found] > _WIDE * _APART[look]
        found = np.unique(np.where(wide, len(lead) + domains(lead, group, look), found), return_inverse=True)[1]
    return found


def domains(lead: Float64, group: Int64, look: int) -> Int64:
    """Number the domains of the units. Neighbouring clocks of a group within the limit of `look` share a domain."""
    order = np.lexsort((lead, group))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(lead[order]) > _APART[look]) | (np.diff(group[order]) != 0)
    result = np.empty(len(order), np.int64)
    result[order] = np.cumsum(new) - 1
    return result
