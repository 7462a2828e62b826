"""Which SMs share a clock.

On the H200 the SMs of a GPC count the same cycles: their clocks agree to within the noise of reading them, while those
of other GPCs are hundreds of thousands of cycles away and, under load, run at another rate. So the anchors of a GPC's
SMs are all anchors of one clock. The driver does not tell which SMs belong together; the clocks themselves do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64 = npt.NDArray[np.int64]
Float64 = npt.NDArray[np.float64]

_APART = (20_000.0, 1_500.0, 250.0)
"""Cycles between two clocks that are not one, by ever closer looks."""
LOOKS = len(_APART)
_WIDE = 4.0
"""Times the next look's limit that clocks taken for one may lie apart in all, before that look is taken."""
_EARLY = 0.1
"""Of a launch's time, the part in which an SM's anchors say best how far its clock is ahead of the others'."""


def ahead(
    clock: Int64, ns: Int64, member: Int64, group: Int64, slope: Float64
) -> tuple[Float64, npt.NDArray[np.bool_]]:
    """Cycles by which each unit's clock is ahead at its group's first anchor, and whether that was read early enough to
    be exact. `slope` is each unit's mean rate."""
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
    """Cycles per ns of each group's clocks in its first moments: a load that slows them down has not begun to."""
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
    """Domains by as close a look as it takes: SMs that share a clock lie as near to each other as readings are exact,
    where those are `sure`; others may be further off."""
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
    """A number for each unit; units of one group whose clocks are no further apart than `look` allows share it."""
    order = np.lexsort((lead, group))
    new = np.ones(len(order), bool)
    new[1:] = (np.diff(lead[order]) > _APART[look]) | (np.diff(group[order]) != 0)
    result = np.empty(len(order), np.int64)
    result[order] = np.cumsum(new) - 1
    return result
