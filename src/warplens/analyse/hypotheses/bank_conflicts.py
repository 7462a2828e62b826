"""Do lanes of a warp access the same bank of shared memory, so that one access takes many?"""

from __future__ import annotations

from warplens.analyse.code_counts import LEAST_CYCLES, SCHEDULERS
from warplens.analyse.duration_shapes import MODES
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.hypotheses.unmarked_time import unmarked_places
from warplens.analyse.region_purpose import words_of
from warplens.analyse.wait_classes import WaitClass
from warplens.wording import digits, percent

CAUSE = "bank conflicts"
_WIDEST = 4
"""Accesses of 4 bytes that the assembler may make one of."""
_ADVICE = "Pad the rows by one element, swizzle the columns, or let consecutive lanes access consecutive words."
_REFUTED_BY = "Padded rows that take as long; Nsight Compute shows no shared memory bank conflicts."
_LEAST = 0.1
_LEAST_WAYS = 4
_LEAST_MEAN = 1.5
_LEAST_COUNTED = 0.25
_REACHABLE = 0.9
"""Of the listed peak of the memory."""
_OFTEN_BUSY = 0.4
_BUSY = 0.5
"""From this share of the time on, shared memory is what the kernel waits for."""
_SHARED_LATENCY = 30
"""Cycles of an access to shared memory."""
_SHARED_WORDS = {"smem", "shared", "lds", "sts", "ldsm", "ldmatrix", "stmatrix", "transpose"}


def _judge(e: Evidence) -> Finding:
    if e.ncu is not None and e.ncu.shared_conflicts is not None:
        return _from_counters(e, e.ncu.shared_conflicts)
    if e.code:
        return _from_code(e)
    named = {name: share for name, share in e.warps.regions.items() if words_of(name) & _SHARED_WORDS}
    region = next((name for name, share in named.items() if share >= _LEAST), "")
    if not region:
        return e.refuted(CAUSE, "no region that is named for shared memory takes much time")
    return e.undecided(
        CAUSE,
        f"`{region}` takes {percent(named[region])} of warp time; the trace does not show which banks its lanes "
        "access.",
        "Record `warplens run --ncu` and pass the report, or record the kernel through warplens' own compilers.",
        Gain.between(0.0, 0.9 * named[region]),
        region=region,
    )


def _from_code(e: Evidence) -> Finding:
    """The PTX says which banks the lanes of each access touch."""
    found = {
        name: one.ways
        for name, one in e.code.items()
        if one.ways >= _LEAST_WAYS and one.mean_ways >= _LEAST_MEAN and _weight(e, name) >= _LEAST
    }
    if not found:
        return e.refuted(
            CAUSE, "the PTX shows no access to shared memory with many lanes on a bank where it takes time"
        )
    name = max(found, key=lambda region: _weight(e, region) * (1 - 1 / found[region]))
    ways, share = int(found[name]), e.shares.get(name, 0.0)
    needed = _cycles_needed(e, name)
    if needed > _WIDEST:
        return e.refuted(
            CAUSE,
            f"the conflicts that the PTX shows in {e.named(name)} would take {digits(needed)} times the kernel's time, "
            "so the compiler must have removed them",
        )
    if needed > 1:
        return _widened(e, name, needed)
    # A region that mostly accesses shared memory takes as long as its conflicts; others wait for it meanwhile.
    portion = min(3 * e.code[name].shared / max(e.code[name].instructions, 1), _due(e, name))
    most = min(1.2 * share + _at_barriers(e), 1.0) * (max(portion, min(0.3, _due(e, name))) if name else 1.0)
    waited = 0.0 if e.code[name].waits_for_memory else share * portion
    slower = 1 - 1 / e.code[name].mean_ways
    if name and e.code[name].loops and not e.code[name].waits_for_memory:
        # How often an instance makes its accesses is not known, but of a round of its loop it is.
        slower, waited = _of_a_round(e, name), share
        # Where they keep shared memory busy as long as some warps are in the loop, all others wait for it as well.
        most = min(max(1.2 * share + _at_barriers(e), share * e.warps.per_sm if slower > 0 else 0.0), 1.0)
    busy, plain = min(needed, 1.0), min(needed * e.kernel_ns / e.plain_ns, 1.0)
    if e.memory_busy and plain <= _BUSY:
        return e.refuted(CAUSE, "warps wait for the memory, which moves as much as it can, longer than for conflicts")
    # How often a loop inside the region runs is not known, and what else it waits for may take as long.
    unsure = bool(e.code[name].loops and e.code[name].waits_for_memory and plain <= _BUSY)
    unknown = " The trace does not show how often, as they are in a loop beside accesses to memory." if unsure else ""
    # Where shared memory is busy for little of the time, others hide it.
    all_ = min(_held_up(e), 1.0) if e.shared_busy >= _OFTEN_BUSY else 0.0
    return e.supported(
        CAUSE,
        f"{ways} lanes of a warp access the same bank of shared memory in {e.named(name)}, which takes "
        f"{percent(share)} of warp time: each such access takes {ways} times as long.{unknown}",
        _ADVICE,
        # How long the kernel takes without marks is an estimate.
        _beside_memory(e, slower * busy, slower * max(plain, share if e.code[name].loops else 0.0))
        if plain > _BUSY
        else _beside_memory(e, max(slower * waited, all_), max(slower * max(plain, most), all_)),
        LOW if unsure else HIGH,
        region=name,
        evidence={"lanes_per_bank": ways, "share_of_warp_time": share, "pipe_busy_share": busy, "from": "PTX"},
        refuted_by=_REFUTED_BY,
    )


def _beside_memory(e: Evidence, least: float, most: float) -> Gain:
    """Sectors that no lane uses may keep the memory busy once nothing else does."""
    return e.gain(min(least, max(1 - (e.memory_at_most or 0.0) / _REACHABLE, 0.0)), most)


def _held_up(e: Evidence) -> float:
    """The share of the kernel's time in which conflicts of all regions keep shared memory busy, as far as it is known
    how often they run."""
    found = ((name, one, _cycles_needed(e, name)) for name, one in e.code.items() if name and one.conflicts)
    return sum(needed * (1 - 1 / one.mean_ways) for _, one, needed in found if needed <= 1)


def _of_a_round(e: Evidence, name: str) -> float:
    """The share of a loop's time that conflicts take. A round takes as long as the accesses of all warps that are in
    it, as their instructions on the schedulers, or as one warp alone, whichever is longest."""
    one, warps = e.code[name], max(e.shares.get(name, 0.0) * e.warps.per_sm, 1.0)
    # Accesses in a row wait together; a barrier ends a row.
    alone = LEAST_CYCLES * one.instructions + _SHARED_LATENCY * (1 + one.barriers)
    others = max(one.shared * warps, one.instructions * warps / SCHEDULERS, alone)
    return 1 - others / max(one.shared * one.mean_ways * warps, others)


def _weight(e: Evidence, name: str) -> float:
    """The share of warp time of a region, or of the time in which its conflicts keep shared memory from all others."""
    busy = _cycles_needed(e, name) if name else 0.0
    return max(_due(e, name) * e.shares.get(name, 0.0), busy if busy <= 1 else 0.0)


def _due(e: Evidence, name: str) -> float:
    """The share of a region's time that its accesses to shared memory can take: all of those that the warps of an SM
    may make at the same time, one after the other. 1 where it is not known how many an instance makes."""
    shape = next((one for one in e.of(MODES).regions if one.region == name), None)
    if shape is None or e.code[name].loops:
        return 1.0
    ahead = 1 + e.shares.get(name, 0.0) * e.warps.per_sm
    return min(e.code[name].shared * e.code[name].mean_ways * ahead / max(shape.p50, 1.0), 1.0)


def _at_barriers(e: Evidence) -> float:
    """The share of warp time at barriers, where warps wait for those that are held up; half the time of regions that
    also do something else."""
    alone = sum(share for region, share in e.waiting.items() if e.wait_class(region) is WaitClass.BARRIER)
    others = (share for region, share in e.warps.regions.items() if region in e.code and e.code[region].barriers)
    return alone + 0.5 * max(sum(others) - alone, 0.0)


def _widened(e: Evidence, name: str, needed: float) -> Finding:
    """Conflicts that would take longer than the kernel: ptxas made one wide access of up to four, with fewer."""
    ways = max(int(e.code[name].ways) // _WIDEST, 1)
    if ways < 2:
        return e.refuted(CAUSE, f"the compiler made wide accesses in {e.named(name)}, without conflicts")
    return e.supported(
        CAUSE,
        f"About {ways} lanes of a warp access the same bank of shared memory in {e.named(name)}, which takes "
        f"{percent(e.shares[name])} of warp time, in accesses that the compiler made wider.",
        _ADVICE,
        Gain.between(0.0, (1 - 1 / ways) * min(needed, 1.0)),
        LOW,
        region=name,
        evidence={"lanes_per_bank": ways, "share_of_warp_time": e.shares[name], "from": "PTX"},
        refuted_by=_REFUTED_BY,
    )


def _cycles_needed(e: Evidence, name: str) -> float:
    """How long conflicts keep an SM's shared memory busy, in terms of the kernel's time, if accesses run once per
    instance: then every region that needs it is slower, not only this one."""
    shapes = {one.region: one.count for one in e.of(MODES).regions}
    # Code outside all regions runs about as often as warps are at the place where most of its time is.
    count = shapes.get(name, 0) if name else next((place.count for place in unmarked_places(e)), 0)
    instances = count * e.blocks_per_recorded / len(e.launches) / max(e.warps.sms, 1.0)
    return instances * e.code[name].shared * e.code[name].mean_ways / (e.kernel_ns * e.lives.cycles_per_ns)


def _from_counters(e: Evidence, conflicts: float) -> Finding:
    if conflicts < _LEAST_COUNTED:
        return e.refuted(CAUSE, f"Nsight Compute: {percent(conflicts)} of the cycles of shared memory are conflicts")
    region = max(e.code, key=lambda name: e.code[name].ways * e.shares.get(name, 0.0), default="")
    region = region or next(iter(e.warps.regions), "")
    share = e.shares.get(region, 1.0)
    return e.supported(
        CAUSE,
        f"{percent(conflicts)} of the cycles of shared memory are bank conflicts (Nsight Compute); {e.named(region)} "
        f"takes {percent(share)} of warp time.",
        _ADVICE,
        e.gain(share * conflicts, min(1.2 * share, 1.0) * conflicts),
        HIGH,
        region=region,
        evidence={"conflicts": conflicts, "share_of_warp_time": share},
        refuted_by=_REFUTED_BY,
    )


BANK_CONFLICTS = Hypothesis(
    CAUSE,
    _judge,
    # Warps that shared memory holds up come late to barriers.
    explains=frozenset({"warp imbalance", "low occupancy", "too little in flight", "unneeded barrier"}),
    about_region=True,
)
