"""Where warps wait for what they loaded: a load ends when it is issued, and its data is waited for where it is used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from warplens.analyse.code_counts import LEAST_CYCLES, MOST_CYCLES, SCHEDULERS, CodeCounts
from warplens.analyse.devices import find_peak
from warplens.analyse.duration_shapes import median_cycles
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.roofline import device_of

if TYPE_CHECKING:
    from warplens.analyse.evidence import Evidence

_SHARED_CYCLES = 40
"""What an access to shared memory takes at most where nothing holds it up."""
_MOSTLY_WAITS = 0.4
LATENCY_NS = 450
"""Of a load from the device's memory that is not busy."""
_LEAST_SHARE = 0.002
"""Of warp time: what is less is not looked at, as a kernel may have thousands of regions."""
_LEAST_INSIDE = 0.1
_MOSTLY_MEET = _MOSTLY_LOADS = 0.5


def followers(lives: Lifetimes, shares: Mapping[str, float]) -> dict[str, dict[str, float]]:
    """For each region, how much warp time the regions take that directly follow it, as far as they do. Regions that
    have others inside them are not looked at, as those follow one another."""
    many = len(lives.regions)
    rows = lives.rows_of(np.arange(len(lives)))
    outer = np.zeros(len(lives.parent), bool)
    outer[lives.parent[rows][lives.is_span[rows] & (lives.parent[rows] >= 0)]] = True
    rows = rows[lives.is_span[rows] & ~outer[rows]]
    track = lives.track_of(rows)
    same = track[1:] == track[:-1]
    code = lives.region[rows].astype(np.int64)
    pairs, counts = np.unique((code[:-1] * many + code[1:])[same], return_counts=True)
    count = np.maximum(np.bincount(code, minlength=many), 1)
    found: dict[str, dict[str, float]] = {}
    for pair, often in zip(pairs.tolist(), counts.tolist(), strict=True):
        first, second = (lives.regions[at] for at in divmod(pair, many))
        follows = found.setdefault(first, {})
        if second != first:
            follows[second] = float(shares.get(second, 0.0) * often / count[pair % many])
    return found


def awaiting(e: Evidence) -> dict[str, float]:
    """The share of warp time that regions wait for loads: those that take far longer than their instructions do and
    load nothing themselves, if the code before them loads; and those that load and use their data."""
    before = {user for loaded, users in e.followers.items() if _loads(e.code.get(loaded)) for user in users}
    outside = loads_outside(e)
    found = {}
    for region, share in e.warps.regions.items():
        one = e.code.get(region)
        if one is None or e.kinds[region] is Purpose.WAIT or share < _LEAST_SHARE:
            continue
        if one.only_computes and (region in before or outside):
            part = 1 - needed_cycles(e, one, MOST_CYCLES) / took(e, region)
            if part > 1 - _MOSTLY_WAITS:
                found[region] = part * share
        elif e.kinds[region] is not Purpose.MEMORY and uses_what_it_loads(one):
            found[region] = _own_loads(e, region, one) * share
    return {region: share for region, share in found.items() if share > 0}


def loads_itself(e: Evidence, region: str) -> bool:
    """Whether a region that waits for loads waits for its own."""
    return _loads(e.code.get(region))


def waiting_together(e: Evidence) -> float:
    """How many warps wait for their loads at the same time: those of a block, where they meet at barriers in the region
    that waits; else each by itself."""
    meet = [share for region, share in e.awaiting.items() if e.code[region].barriers]
    met = sum(meet) >= _MOSTLY_MEET * sum(e.awaiting.values())
    return e.lives_per_block if met else 1.0


def loads_outside(e: Evidence) -> bool:
    """Whether a loop outside all regions loads what regions may use."""
    one = e.code.get("")
    return one is not None and _loads(one) and bool(one.repeats)


def uses_what_it_loads(one: CodeCounts) -> bool:
    """Whether a region loads and works with the data, so that its time is both, and does nothing else that takes long.
    Loops of unknown length leave open how much it does."""
    others = one.copies + one.waits + one.polls + one.atomics + one.shared_atomics + one.matrix + one.local
    return _loads(one) and not (others or one.loops or one.unbounded)


def most_in_flight(e: Evidence) -> float:
    """The bytes that the warps of an SM have in flight at most: all of them in the region that loads the most."""
    return max((one.fetched_bytes for one in e.code.values() if one.loads), default=0.0) * e.warps.per_sm


def _own_loads(e: Evidence, region: str, one: CodeCounts) -> float:
    """The share of a region's time for which it waits for its own loads: half-way between the least, the latency of the
    loads or what slow instructions do not explain, and the most, what fast ones do not explain. Where warps meet in the
    region, they may wait for one another as well: only the time of the loads counts, if it is most of it."""
    lasts = took(e, region)
    at_most = 1 - needed_cycles(e, one, LEAST_CYCLES) / lasts
    loading = min(_loading_cycles(e, one) / lasts, at_most)
    if one.barriers:
        return max(loading, 0.0) if loading >= _MOSTLY_LOADS * at_most else 0.0
    least = max(1 - needed_cycles(e, one, MOST_CYCLES) / lasts, loading)
    return max((least + at_most) / 2, 0.0)


def _loading_cycles(e: Evidence, one: CodeCounts) -> float:
    """What the loads of a region take: a latency for each that needs the result of another, and the time in which the
    memory serves what warps that meet request together."""
    peak = find_peak(device_of(e.trace))
    together = e.lives_per_block if one.barriers else 1.0
    served = one.fetched_bytes * together / (peak.bandwidth / peak.sms) if peak else 0.0
    return (LATENCY_NS * max(one.load_levels, 1) + served) * e.lives.cycles_per_ns


def needed_cycles(e: Evidence, one: CodeCounts, each: float) -> float:
    """What a region's instructions take if each of them takes so many cycles, or has to wait for other warps."""
    cycles = max(each, e.warps.per_sm / SCHEDULERS)
    return cycles * one.instructions + _SHARED_CYCLES * one.shared * one.mean_ways


def took(e: Evidence, region: str) -> float:
    """The cycles of an instance of a region, without the regions inside it."""
    cells = e.lives.cells
    here = cells.region == e.lives.region_codes[region]
    whole, own, count = (float(each[here].sum()) for each in (cells.duration, cells.own, cells.count))
    alone = own / max(count, 1) if own < (1 - _LEAST_INSIDE) * whole else 0.0
    return max(alone or median_cycles(e.lives, e.label, region), 1.0)


def _loads(one: CodeCounts | None) -> bool:
    return one is not None and bool(one.loads and one.fetch_bytes)
