"""Is too little in flight: do all warps of an SM wait for memory, with too few bytes requested to keep it busy?"""

from __future__ import annotations

from dataclasses import dataclass, replace

from warplens.analyse.devices import find_peak
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, MEDIUM, SUPPORTED, Finding, Gain
from warplens.analyse.hypotheses.block_balance import BLOCK_BALANCE
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.hypotheses.pipeline_sides import Sides, side_evidence, sides_of
from warplens.analyse.load_waits import loads_itself, loads_outside, waiting_together
from warplens.analyse.overlap import OVERLAP
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.roofline import device_of
from warplens.analyse.sample_share import WITHHELD
from warplens.analyse.waves import WAVES
from warplens.wording import byte_size, percent

CAUSE = "too little in flight"
_LEAST = 0.1
_BOTH = 0.15
_MANY_WARPS = 12
"""Warps of an SM that fetch at a time; from here on, throughput is more likely the limit if nothing else is known."""
_LATENCY_NS = 450
"""Of a load from the device's memory that is not busy."""
_ENOUGH_WARPS = 16
"""Of an SM: four per scheduler keep it busy."""
_NEARLY = 0.5
_IDLE = 0.5
"""Of the memory's peak: below this share, latency is the limit."""
_REACHABLE = 0.9
"""Of the listed peak of the memory."""
_PER_ISSUE = 3
"""Cycles of a scheduler that an instruction takes, with what it waits for of others, where much is issued."""
_IMPOSSIBLE = 1.05
"""More than this share of the listed peak is not moved by the memory."""
_MOSTLY = 0.5
_FEW = 0.5
"""Below this share of the bytes that keep the memory busy, most of the memory is idle."""
_BYTES_PER_SM = 14_000
"""In flight on an SM to keep the memory of a recent GPU busy, where the device is not known."""


@dataclass(frozen=True)
class Exposure:
    """Shares of SM time: `fetching` with no work beside it, `working` with no fetch beside it; and how many warps of an
    SM fetch at a time. `region` is where most of it is. `in_flight` are the bytes that an SM has requested meanwhile,
    None where the code is not known, and `needed` those that keep the memory busy."""

    fetching: float
    working: float
    warps: float
    region: str
    in_flight: float | None
    needed: float

    @property
    def saturates(self) -> bool:
        """Whether enough is requested at a time that throughput, not latency, is the limit."""
        if self.in_flight is None:
            return self.warps >= _MANY_WARPS
        return self.in_flight >= _NEARLY * self.needed

    @property
    def idles(self) -> bool:
        """Whether what is in flight is known, and far too little to keep the memory busy."""
        return self.in_flight is not None and self.in_flight < _FEW * self.needed


def exposure(e: Evidence) -> Exposure:
    """How much of the SM time only fetches data: memory regions, and waits for data while nothing else runs."""
    one = e.of(OVERLAP)
    waits = sum(share for region, share in e.fetching.items() if e.kinds[region] is Purpose.WAIT)
    portion = waits / max(e.warps.waiting, 1e-9) if e.waiting else 0.0
    idle = _idle_at_work(e)
    return Exposure(
        fetching=min(one.memory_exposed + min(portion, 1.0) * one.waiting + idle * (one.work_exposed + one.both), 1.0),
        working=one.work_exposed * (1 - idle),
        warps=_fetching(e) * e.warps.per_sm,
        region=_where(e),
        in_flight=_in_flight(e),
        needed=needed_bytes(e),
    )


def _where(e: Evidence) -> str:
    """The region to name: the one whose data is waited for longest, in itself and where it is used. One that stores
    fetches nothing, however long it takes beside the others."""
    exposed = {region.region: region.exposed for region in e.of(OVERLAP).regions}
    found = {}
    for region, share in {**e.awaiting, **e.fetching}.items():
        users = e.followers.get(region, {})
        used = sum(e.awaiting.get(user, 0.0) for user in users if not loads_itself(e, user)) if _loads(e, region) else 0
        own = exposed.get(region, 0.0) if region in e.fetching else 0.0
        found[region] = not _only_stores(e, region), own + used + e.awaiting.get(region, 0.0), share
    return max(found, key=lambda region: found[region], default="")


def _loads(e: Evidence, region: str) -> bool:
    return region in e.code and bool(e.code[region].loads)


def _only_stores(e: Evidence, region: str) -> bool:
    one = e.code.get(region)
    return one is not None and bool(one.stores) and not (one.loads or one.copies or one.waits or one.atomics)


def _idle_at_work(e: Evidence) -> float:
    """The share of the time with work on an SM in which it does nothing. Regions that work with what was loaded wait
    for it first; the SM is idle while all of its warps do, or if they issue little by what is known of their code."""
    kinds = (Purpose.WORK, Purpose.OTHER)
    working = sum(share for region, share in e.warps.regions.items() if e.kinds[region] in kinds)
    if not working or not e.awaiting:
        return 0.0
    waiting = min(sum(e.awaiting.values()) / working, 1.0)
    issuing = 1.0 if e.issuing is None else min(_PER_ISSUE * e.issuing, 1.0)
    apart = working * e.warps.per_sm / waiting_together(e)
    return float(max(waiting ** max(apart, 1.0), waiting * (1 - issuing)))


def _fetching(e: Evidence) -> float:
    """The share of warp time that waits for memory: in regions that fetch, and where their data is used."""
    return min(sum(e.fetching.values()) + sum(e.awaiting.values()), 1.0)


def _in_flight(e: Evidence) -> float | None:
    """By Little's law: the bytes that a warp requests at a time, times the warps that fetch."""
    loading = [*e.fetching, *e.awaiting, *([""] if loads_outside(e) else [])]
    code = {region: e.code[region] for region in loading if region in e.code}
    if not any(one.loads or one.copies for one in code.values()):
        return None
    if any(one.copies for one in code.values()):
        return None  # asynchronous copies outlive the region that starts them
    # A warp often waits for the loads of one region in the next, which uses them.
    return max(one.fetched_bytes for one in code.values()) * _fetching(e) * e.warps.per_sm


def needed_bytes(e: Evidence) -> float:
    """What an SM must have in flight to keep the memory busy."""
    peak = find_peak(device_of(e.trace))
    return peak.bandwidth * _LATENCY_NS / peak.sms if peak else _BYTES_PER_SM


def _judge(e: Evidence) -> Finding:
    one = _without_marks(e)
    if one.verdict != SUPPORTED or not e.cost:
        return one
    # Marks between loads keep them apart, so that the time that they add is saved without them, not by a repair.
    return replace(one, gain=Gain.between((one.gain.low - e.cost) / (1 - e.cost), one.gain.high))


def _without_marks(e: Evidence) -> Finding:
    """The verdict as if marks cost nothing."""
    sides = sides_of(e)
    if sides is not None and sides.both_wait:
        if e.memory_busy:
            return _busy(e)
        return _unknown_copies(e, sides) if _copies_outside(e) else _shallow(e, sides)
    if not (e.fetching or e.awaiting):
        return e.refuted(CAUSE, "no region that moves memory or waits for data is marked")
    if sides is not None and sides.consumer_wait <= max(sides.producer_wait, _LEAST):
        return e.refuted(CAUSE, f"consumers wait {percent(sides.consumer_wait)} of their time for producers")
    reached, awaited = e.memory_at_most, sum(share for name, share in e.fetching.items() if name in e.waiting)
    seen = exposure(e)
    if _is_busy(e, seen):
        return _busy(e)
    if reached is not None and sides is None and awaited >= _MOSTLY and reached < _IDLE:
        return _idle_memory(e, reached, awaited)
    unknown = reached is None and seen.in_flight is None and e.ncu is None
    if unknown and sides is None and awaited >= _MOSTLY and (seen.saturates or e.sampled):
        return _unknown_bytes(e, seen, awaited)
    if seen.fetching < _LEAST:
        return e.refuted(CAUSE, f"for {percent(seen.fetching)} of the SM time memory is fetched without work beside it")
    if e.mostly_unmarked:
        return e.undecided(
            CAUSE,
            f"For {percent(seen.fetching)} of the SM time data is fetched (`{seen.region}`) without marked work beside "
            f"it, but {percent(e.warps.unmarked)} of warp time is not marked.",
            "Mark more of the kernel, or record it with `warplens run --auto`.",
            Gain.between(0.0, seen.fetching),
            region=seen.region,
        )
    both = min(seen.fetching, seen.working)
    latency = bool(e.ncu and e.ncu.groups.get("memory dependency", 0.0) > 0.5)
    if seen.saturates and both < _BOTH and not latency:
        held = "" if seen.in_flight is None else f" with {byte_size(seen.in_flight)} in flight on an SM"
        return e.refuted(CAUSE, f"{seen.warps:.0f} warps of an SM fetch at a time{held}: throughput is the limit")
    if not latency and _enough_before_the_end(e, seen):
        return e.refuted(
            CAUSE,
            f"an SM with all of its blocks has enough in flight; on average it has {byte_size(seen.in_flight or 0.0)}, "
            "as blocks are uneven and few of them are left towards the end",
        )
    if e.sampled and seen.in_flight is None:
        return replace(_finding(e, seen, both, MEDIUM), withheld=WITHHELD)
    return _finding(e, seen, both, HIGH if latency or (seen.in_flight or seen.needed) < _FEW * seen.needed else MEDIUM)


def _enough_before_the_end(e: Evidence, seen: Exposure) -> bool:
    """Whether uneven blocks are why little is in flight: while SMs have as many as they ever do, it is enough."""
    grid = e.of(WAVES)
    resident = grid.resident
    if seen.in_flight is None or not grid.complete or sum(resident) <= 0:
        return False
    full = seen.in_flight * max(resident) * len(resident) / sum(resident)
    return full >= seen.needed and BLOCK_BALANCE.judge(e).confidence == HIGH


def _busy(e: Evidence) -> Finding:
    return e.refuted(CAUSE, f"the code requests {percent(e.memory_at_least)} of what the memory can move")


def _is_busy(e: Evidence, seen: Exposure) -> bool:
    """Whether the memory is busy with what the code requests. More than it can move comes from a cache; then only what
    is in flight says whether latency is the limit."""
    if not e.memory_busy:
        return False
    return e.memory_at_least <= _IMPOSSIBLE or not seen.idles


def _unknown_bytes(e: Evidence, seen: Exposure, awaited: float) -> Finding:
    return e.undecided(
        CAUSE,
        f"Warps wait {percent(awaited)} of their time for data (`{seen.region}`), {seen.warps:.0f} of an SM at a time: "
        "either the memory is busy, or each of them has too little in flight. The trace does not show which.",
        "Give the bytes that must be moved (--bytes) or an Nsight Compute report (`warplens run --ncu`), or record the "
        "kernel again with this version, which counts the bytes that regions move.",
        Gain.between(0.0, 0.9 * awaited),
        region=seen.region,
    )


def _idle_memory(e: Evidence, reached: float, awaited: float) -> Finding:
    """Warps wait for data, and memory could move much more: what is in flight at a time is too little."""
    region = next(name for name in e.fetching if name in e.waiting)
    return e.supported(
        CAUSE,
        f"Memory latency is not hidden: warps wait {percent(awaited)} of their time for data (`{region}`), while the "
        f"code requests {percent(reached)} of what the memory can move.",
        "Keep more copies in flight: more stages, and wait for the oldest of them only (`cp.async.wait_group N`, one "
        "mbarrier per stage), or more warps per SM.",
        e.gain(min(awaited, 1 - reached / _REACHABLE)),
        HIGH,
        region=region,
        evidence={"waiting_for_data_share": awaited, "share_of_peak_bandwidth": reached},
        refuted_by="Twice the copies in flight take as long.",
    )


def _copies_outside(e: Evidence) -> bool:
    """Whether copies are outside all regions, in a loop, so that how much they move is not known."""
    one = e.code.get("")
    return one is not None and bool(one.copies and one.repeats)


def _unknown_copies(e: Evidence, sides: Sides) -> Finding:
    return e.undecided(
        CAUSE,
        f"The producer ({sides.producer.role.name}) waits {percent(sides.producer_wait)} of its time and the consumers "
        f"({sides.consumer.role.name}) {percent(sides.consumer_wait)}, for one another. Either the ring has too few "
        "stages (too little in flight), or its copies keep the memory busy. They are outside all regions, so how much "
        "they move is not known.",
        "Mark the copies, or give the bytes that must be moved (--bytes).",
        Gain.between(0.0, sides.both_wait),
        region=sides.producer_at or sides.consumer_at,
    )


def _shallow(e: Evidence, sides: Sides) -> Finding:
    """A ring with too few stages: more of them leave the time of the slower side."""
    return e.supported(
        CAUSE,
        f"The ring has too few stages for the latency of its copies: the producer ({sides.producer.role.name}) waits "
        f"{percent(sides.producer_wait)} of its time in {e.named(sides.producer_at)} and the consumers "
        f"({sides.consumer.role.name}) {percent(sides.consumer_wait)} in {e.named(sides.consumer_at)}, for one "
        "another.",
        "Use more stages, or larger tiles, so that more copies are in flight.",
        e.gain(sides.both_wait, roof=sides.both_wait),
        HIGH,
        region=sides.consumer_at,
        evidence=side_evidence(sides),
        refuted_by="Twice the stages take as long.",
    )


def _finding(e: Evidence, seen: Exposure, both: float, confidence: str) -> Finding:
    depth = e.of(OVERLAP).pipeline
    evidence: dict[str, float | int | str] = {
        "fetch_without_work": seen.fetching,
        "work_without_fetch": seen.working,
        "fetching_warps_per_sm": seen.warps,
        "resident_warps_per_sm": e.warps.per_sm,
    }
    user = max(e.awaiting, key=lambda region: e.awaiting[region], default="")
    more = f" Warps wait for it where it is used, in `{user}`." if user not in ("", seen.region) else ""
    if depth and depth.most:
        more += f" On average {depth.mean:.1f} loads were in flight when work began."
        evidence |= {"loads_in_flight": depth.mean, "loads_in_flight_max": depth.most}
    # More stages also overlap what is left of the fetches with work.
    exposed = min(seen.fetching + both * min(2 * seen.fetching, 1.0), 1.0)
    if seen.in_flight is not None:
        more += (
            f" An SM has {byte_size(seen.in_flight)} in flight; about {byte_size(seen.needed)} keep the memory busy."
        )
        evidence |= {"bytes_in_flight": seen.in_flight, "bytes_needed": seen.needed}
        if seen.idles:
            # A little work of other warps does not hide what each warp waits for while the memory is idle; that of
            # many does.
            exposed = max(exposed, _fetching(e) * (1 - min(_working(e) / _ENOUGH_WARPS, 1.0)))
    return e.supported(
        CAUSE,
        f"Memory latency is not hidden: for {percent(seen.fetching)} of the SM time data is fetched (`{seen.region}`) "
        f"and nothing else runs, with {seen.warps:.1f} warps of an SM fetching at a time.{more}",
        "Keep more loads in flight: start the next tile's loads before working on this one (double buffering, cp.async "
        "or TMA with more stages), several independent loads per warp, or more warps per SM.",
        _gain(e, seen, both, exposed),
        confidence,
        region=seen.region,
        evidence=evidence,
        refuted_by="Twice the loads in flight (or warps per SM) take as long; Nsight Compute shows few stalls on "
        "memory dependency (long scoreboard).",
    )


def _gain(e: Evidence, seen: Exposure, both: float, exposed: float) -> Gain:
    """Fetches and work that alternate can overlap, and more in flight takes less time, until the memory is busy."""
    if any(loads_itself(e, region) for region in e.awaiting):
        # One region does both, so what warps wait for in it may all overlap, until something is busy.
        return e.gain(0.0 if seen.saturates else seen.fetching, min(_fetching(e), e.room))
    if both >= _BOTH:
        exposed = min(exposed, _roof(e, exposed))
        most = max(seen.fetching, exposed * (1 - (seen.in_flight or 0.0) / seen.needed) if seen.idles else 0.0)
        return e.gain(0.0 if seen.saturates else both, most, roof=exposed)
    if seen.in_flight is None or seen.saturates:
        return Gain.between(0.0 if seen.saturates else max(0.25 * both, 0.15 * seen.fetching), 0.95 * exposed)
    return e.gain(exposed * (1 - seen.in_flight / seen.needed), roof=_roof(e, exposed))


def _working(e: Evidence) -> float:
    """The warps of an SM that work at a time, beside those that wait for what they loaded."""
    shares = (share for region, share in e.warps.regions.items() if e.kinds[region] in (Purpose.WORK, Purpose.OTHER))
    return max(sum(shares) - sum(e.awaiting.values()), 0.0) * e.warps.per_sm


def _roof(e: Evidence, exposed: float) -> float:
    """What the schedulers leave; where many warps work, they are busy except while all of the SM fetches."""
    return min(e.room, exposed if _working(e) >= _ENOUGH_WARPS else 1.0)


EXPOSED_LATENCY = Hypothesis(CAUSE, _judge, explains=frozenset({"cache misses"}), about_region=True)
