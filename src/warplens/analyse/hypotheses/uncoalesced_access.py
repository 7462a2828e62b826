"""Do lanes of a warp access addresses that are apart, so that most of the bytes that are moved are not used?"""

from __future__ import annotations

from warplens.analyse.code_counts import LANES
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.exposed_latency import needed_bytes
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.waves import WAVES
from warplens.wording import byte_size, digits, percent

CAUSE = "uncoalesced access"
_ADVICE = (
    "Let consecutive lanes read consecutive addresses, 16 bytes each; transpose through shared memory where the layout "
    "is fixed."
)
_NEXT = (
    "Record `warplens run --ncu` and pass the report: sectors per load request (4 when lanes load adjacent 4-byte "
    "words, 32 when each lane touches a sector of its own); or give the bytes that must be moved (--bytes)."
)
_REFUTED_BY = "Nsight Compute: nearly all bytes of the loaded sectors are used (4 sectors per request of 4-byte words)."
_LEAST_WASTE = 2.0
_SEVERE = 4.0
_LITTLE = 0.08
_MIN_USED = 0.5
_LEAST = 0.1
_LOW_BANDWIDTH = 0.4
_LEAST_UNKNOWN = 0.3
_REACHABLE = 0.9
"""Of the listed peak of the memory."""
_LINE_OF_SECTORS = 4
_SEVERE_LOSS = 1 - 1 / _SEVERE


def _judge(e: Evidence) -> Finding:
    if e.ncu is not None and e.ncu.load_efficiency is not None:
        return _from_counters(e, e.ncu.load_efficiency)
    if e.code:
        return _from_code(e)
    region, share = _longest(e)
    if not region or share < _LEAST:
        return e.refuted(CAUSE, "regions that move memory take little of the time")
    point = e.point
    if point is not None and point.bandwidth is not None and point.roof == "memory":
        used = min(e.warps.sms / max(e.of(WAVES).sms, 1), 1.0)  # SMs without a block request nothing
        reached = min(point.bandwidth / point.ceilings.bandwidth / used, 1.0)
        if reached >= _LOW_BANDWIDTH:
            return e.refuted(CAUSE, f"memory moves {percent(reached)} of its peak")
        if e.warps.per_sm * (1 - e.warps.waiting) >= _ENOUGH_WARPS:
            return _from_bandwidth(e, region, share, reached)
    inside = e.warps.per_sm * share
    if inside < _ENOUGH_WARPS:
        return e.refuted(
            CAUSE, f"{inside:.1f} warps of an SM are in `{region}` at a time: too few for throughput to be the limit"
        )
    return e.undecided(
        CAUSE,
        f"`{region}` takes {percent(share)} of warp time with {inside:.0f} warps of an SM in it. If it "
        f"moves memory, then either its lanes access addresses that are apart, or the memory is at its roof.",
        _NEXT,
        Gain.between(0.0, 0.9 * share),
        region=region,
    )


_ENOUGH_WARPS = 12
"""Warps of an SM that keep the memory busy if their accesses are coalesced."""


def _longest(e: Evidence) -> tuple[str, float]:
    """The region that moves the most by its name; the longest of all where no load is marked by itself."""
    loads = {name: share for name, share in e.fetching.items() if share >= 0.05}
    found = loads or e.warps.regions
    name = max(found, key=lambda region: found[region], default="")
    return name, found.get(name, 0.0)


def _from_code(e: Evidence) -> Finding:
    """The PTX says how many sectors the lanes of each load touch."""
    wasted = {
        name: max(one.load_waste, one.store_waste / 2)
        for name, one in e.code.items()
        if one.loads + one.stores and e.share_with_users(name) >= _LEAST
    }
    name = max(wasted, key=lambda region: (1 - 1 / max(wasted[region], 1.0)) * e.share_with_users(region), default=None)
    if name is not None and wasted[name] >= _LEAST_WASTE:
        waste, share = wasted[name], e.share_with_users(name)
        lost, most_lost = 1 - 1 / waste, 1 - 1 / max(e.code[name].load_waste, e.code[name].store_waste)
        moving = sum(e.shares.get(region, 0.0) for region, one in e.code.items() if one.loads or one.stores)
        # Neighbouring loads may use what is left of a few sectors; they hardly ever use what is left of all of them.
        severe = waste > _SEVERE or e.code[name].store_waste >= 2 * _SEVERE
        if not severe and _unused(e, name) * share < _LITTLE:
            return e.refuted(CAUSE, f"few of the bytes that {e.named(name)} moves are unused")
        return e.supported(
            CAUSE,
            f"Lanes of a warp access addresses that are apart in {e.named(name)}: an access touches {waste:.0f} times "
            "the sectors that neighbouring addresses would. With the code that waits for them, it takes "
            f"{percent(share)} of warp time.",
            _ADVICE,
            _gain(e, max(share, moving), most_lost, _unused(e, name))
            if severe
            else Gain.between(0.0, share * min(lost, _unused(e, name))),
            HIGH if severe else LOW,
            region=name,
            evidence={"moved_over_used": waste, "share_of_warp_time": share, "from": "PTX"},
            refuted_by=_REFUTED_BY,
        )
    scattered = {
        region: share
        for region, one in e.code.items()
        if region and one.scattered and (share := e.share_with_users(region)) >= _LEAST_UNKNOWN
    }
    if scattered:
        return _from_unknown_addresses(e, *max(scattered.items(), key=lambda item: item[1]))
    return e.refuted(CAUSE, "the PTX shows that lanes access neighbouring addresses wherever it takes time")


def _unused(e: Evidence, name: str) -> float:
    """The share of the bytes of a region's sectors that none of its accesses uses: other fields of a record may be."""
    one = e.code[name]
    return one.wasted_bytes / max(one.moved_bytes + one.wasted_bytes, 1) if one.wasted_bytes or one.fetch_bytes else 1.0


def _gain(e: Evidence, share: float, lost: float, unused: float = 1.0) -> Gain:
    """What lanes use must still be moved. Memory that is busy with the rest holds up all regions that access it, and
    the others in part. Where other accesses use what one leaves of its sectors, a cache may have it, and only the
    number of sectors per access is saved for sure. An access looks up line by line, and each sector may be in a line of
    its own."""
    left = max(1 - lost, (e.memory_reached or 0.0) / _REACHABLE)
    saved = (1 + share) / 2 * (1 - left)
    roof = min(1 - (1 - lost) / _LINE_OF_SECTORS, _left_by_shared_memory(e))
    gain = e.gain(e.surely_gained * min(saved, (1 + share) / 2 * unused), saved, roof=roof)
    # It may hold up all the others as well: then as much is left as keeps the schedulers or the memory busy.
    # Each line takes a look-up.
    held = min(roof, e.room)
    return Gain.between(gain.low, max(gain.high, min(held, roof, e.most_gain))) if lost >= _SEVERE_LOSS else gain


def _left_by_shared_memory(e: Evidence) -> float:
    """What accesses to shared memory leave, with their conflicts: more than all of the time is what ptxas removed."""
    return 1 - e.shared_busy if e.shared_busy <= 1 else 1.0


def _from_unknown_addresses(e: Evidence, region: str, share: float) -> Finding:
    """What the code does not say, the rate may: enough is in flight for coalesced accesses, and little arrives."""
    reached = e.memory_reached
    in_flight = LANES * e.code[region].load_bytes / e.code[region].load_levels * share * e.warps.per_sm
    if reached is not None and reached < _LOW_BANDWIDTH and in_flight >= needed_bytes(e):
        return e.supported(
            CAUSE,
            f"{e.named(region)}, with the code that waits for its data, takes {percent(share)} of warp time and has "
            f"{byte_size(in_flight)} in flight on an SM, enough to keep the memory busy. Yet the kernel gets only "
            f"{percent(reached)} of what the memory can move, so most bytes that are moved must be unused.",
            f"{_ADVICE} {_NEXT}",
            _gain(e, share, 1.0),
            MEDIUM,
            region=region,
            evidence={"share_of_peak_bandwidth": reached, "bytes_in_flight": in_flight, "share_of_warp_time": share},
            refuted_by=_REFUTED_BY,
        )
    return e.undecided(
        CAUSE,
        f"`{region}`, with the code that waits for its data, takes {percent(share)} of warp time. Its addresses are "
        "known only at run time, so the trace does not show how far apart those of a warp's lanes are.",
        _NEXT,
        Gain.between(0.0, 0.8 * share),
        region=region,
    )


def _from_bandwidth(e: Evidence, region: str, share: float, reached: float) -> Finding:
    point = e.point
    assert point is not None
    assert point.bandwidth is not None
    of_peak = point.bandwidth / point.ceilings.bandwidth
    return e.supported(
        CAUSE,
        f"Memory moves only {digits(point.bandwidth)} of {digits(point.ceilings.bandwidth)} GB/s ({percent(of_peak)}), "
        f"although memory is the roof and {e.warps.per_sm:.0f} warps per SM keep it busy; most of the time goes to "
        f"`{region}` ({percent(share)}).",
        f"{_ADVICE} {_NEXT}",
        e.gain(share * (1 - reached / _REACHABLE), 1 - reached),
        MEDIUM,
        region=region,
        evidence={"GB/s": point.bandwidth, "of_peak": of_peak, "share_of_warp_time": share},
        refuted_by=_REFUTED_BY,
    )


def _from_counters(e: Evidence, used: float) -> Finding:
    assert e.ncu is not None
    if used >= _MIN_USED:
        return e.refuted(CAUSE, f"Nsight Compute: {percent(used)} of the loaded bytes are used")
    wasted = {
        name: one.load_waste * e.warps.regions.get(name, 0.0) for name, one in e.code.items() if one.load_waste > 1
    }
    region = max(wasted, key=lambda name: wasted[name], default="") or _longest(e)[0]
    share = e.warps.regions.get(region, 0.0)
    sectors = "" if e.ncu.sectors is None else f"{e.ncu.sectors:.1f} sectors of 32 bytes per load request, "
    known = {} if e.ncu.sectors is None else {"sectors_per_request": e.ncu.sectors}
    return e.supported(
        CAUSE,
        f"Loads are uncoalesced: {sectors}{percent(used)} of the loaded bytes used (Nsight Compute); most of the time "
        f"goes to `{region}` ({percent(share)}).",
        _ADVICE,
        e.gain(share * (1 - used), 1 - used),
        HIGH,
        region=region,
        evidence={"load_efficiency": used, **known, "share_of_warp_time": share},
        refuted_by="Wider or transposed loads that leave the sectors per request as they are.",
    )


UNCOALESCED_ACCESS = Hypothesis(
    CAUSE,
    _judge,
    explains=frozenset({"too little in flight", "cache misses", "low occupancy", "warp imbalance", "last wave"}),
    needs_headroom=False,
    about_region=True,
)
