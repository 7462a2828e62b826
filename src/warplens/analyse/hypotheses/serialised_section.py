"""Is work serialised: by a lock, a turn or a chain of flags that lets one warp work while the others wait?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, MEDIUM, Finding
from warplens.analyse.groups import reduce_by
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.intervals import length, union
from warplens.analyse.lifetimes import Int, Lifetimes
from warplens.analyse.load_waits import loads_outside
from warplens.analyse.region_purpose import Purpose
from warplens.analyse.wait_classes import WaitClass
from warplens.analyse.waves import WAVES
from warplens.trace.schema import LIFE
from warplens.wording import percent

CAUSE = "serialised section"
_ADVICE = (
    "Remove the ordering: a lock, a ticket, or a chain of flags. Where order matters, work first and serialise only "
    "the writes, combine results per warp or block before the shared step, or use atomics."
)
_REFUTED_BY = "Instances of the section that run at the same time in the timeline, or no gain from removing the lock."
_MOST_WORKING = 0.1
_LEAST_SHARE, _MOST_SHARE = 0.3, 1.1
_LEAST_LOCKED = 0.15
_LEAST_WARPS = 4
_LEAST_BLOCKS = 8
_OVERLAP = 0.05
_MOST_OF_ONE = 0.5
_MOSTLY_LOADS = 0.5
_PASS_ON_NS = 700
"""To pass on a turn: write a flag to the cache of the device, see it there, and read what it guards."""
_SURE = 0.9
"""An order that must be kept leaves part of the waiting, however much of it there is."""


@dataclass(frozen=True)
class Section:
    """A region that many warps run and never two at a time: on the whole device, or in each block."""

    region: str
    place: str
    share: float
    """Of the kernel's time on the device, or of the blocks' time in a block."""


def exclusive_section(e: Evidence) -> Section | None:
    """The region whose instances exclude one another and take up the time. Names play no role."""
    lives = e.lives
    # Instances that exclude one another take no longer together than the kernel or the blocks do.
    cells, many = lives.cells, len(lives.regions)
    of_kernel, of_blocks = (np.bincount(cells.region, each, many).astype(float) for each in (cells.ns, cells.duration))
    of_kernel /= e.durations_ns.sum()
    of_blocks /= max(float((lives.blocks.end - lives.blocks.begin).sum()), 1.0)
    found = []
    for name in e.warps.regions:
        code = lives.region_codes[name]
        fits = [_LEAST_SHARE <= shares[code] <= _MOST_SHARE for shares in (of_kernel, of_blocks)]
        if e.kinds[name] is Purpose.WAIT or name == LIFE or not any(fits):
            continue
        if fits[0] and _excludes_on_device(e, name):
            found.append(Section(name, "device", min(float(of_kernel[code]), 1.0)))
        elif fits[1] and _excludes_in_blocks(e, code):
            found.append(Section(name, "block", min(float(of_blocks[code]), 1.0)))
    return max(found, key=lambda one: one.share, default=None)


def _excludes_on_device(e: Evidence, name: str) -> bool:
    rows = e.spans_in([name])
    tracks = e.lives.track_of(rows)
    many = len(np.unique(e.lives.block[tracks])) >= _LEAST_BLOCKS * len(e.launches)
    start, lasted = e.trace.numpy("start_ns")[rows], e.trace.numpy("dur_ns")[rows]
    return many and _exclude([(start, lasted, e.lives.launch[tracks])], float(lasted.sum()))


def _excludes_in_blocks(e: Evidence, code: int) -> bool:
    lives, cells = e.lives, e.lives.cells
    here = cells.region == code
    ran, spent = cells.track[here], cells.duration[here]
    warps = np.bincount(lives.block[ran])
    many = float(np.median(warps[warps > 0])) >= _LEAST_WARPS
    # Warps take turns; one that runs it for most of the time has more work than the others.
    blocks, group = np.unique(lives.block[ran], return_inverse=True)
    most, whole = (reduce_by(one, spent, group.reshape(-1), len(blocks)) for one in (np.maximum, np.add))
    shared = float(np.median(most / np.maximum(whole, 1))) <= _MOST_OF_ONE
    return many and shared and _exclude(_instances(lives, ran, code), float(spent.sum()))


def _instances(lives: Lifetimes, ran: Int, code: int) -> Iterator[tuple[Int, Int, Int]]:
    """Begin, cycles and block of a region's spans on some tracks, all spans of a block together."""
    member = np.isin(np.arange(len(lives)), ran)
    for batch in lives.track_batches(np.where(member, lives.block, -1)):
        tracks = batch[member[batch]]
        rows = lives.rows_of(tracks)
        chosen = (lives.region[rows] == code) & lives.is_span[rows]
        block = np.repeat(lives.block[tracks], lives.counts[tracks])
        yield lives.start[rows[chosen]], lives.duration[rows[chosen]], block[chosen]


def _exclude(parts: Iterable[tuple[Int, Int, Int]], total: float) -> bool:
    """Whether intervals at the same place do not overlap, apart from the error of the clock.

    `parts` have the begin, length and place of intervals, and all those of a place; `total` is their length. A few show
    that a section is not exclusive.
    """
    overlapping = 0.0
    for start, lasted, place in parts:
        if len(start):
            first = int(start.min())
            axis = place * (int((start + lasted).max()) - first + 1) - first + start
            overlapping += float(lasted.sum()) - length(*union(axis, axis + lasted))
        if overlapping > _OVERLAP * total:
            return False
    return True


def _without_waits(e: Evidence, waiting: float) -> float:
    """The share of the kernel's time that is saved if blocks take only the time that their warps do not wait."""
    lives = e.lives
    alone = (1 - waiting) * float((lives.finish_ns - lives.begin_ns).mean())
    return 1 - alone * math.ceil(e.of(WAVES).waves) / e.kernel_ns


def _sure(e: Evidence, region: str) -> float:
    """The share of the kernel's time that is surely saved, at most. A chain of flags that gives each block its turn
    remains where the order must be kept: then each turn still has to be passed on through the cache."""
    code = e.code.get(region)
    if code is None or not code.polls or code.atomics or region not in e.lives.region_codes:
        return _SURE
    cells, lives = e.lives.cells, e.lives
    here = cells.region == lives.region_codes[region]
    most = reduce_by(np.maximum, cells.count[here], lives.block[cells.track[here]], len(lives.blocks))
    turns = float(np.maximum(most, 0).sum()) * e.blocks_per_recorded / len(e.launches)
    return min(_SURE, max(1 - turns * _PASS_ON_NS / e.plain_ns, 0.0))


def _held_blocks(e: Evidence, regions: list[str]) -> float:
    """The share of the blocks' time in which one of their warps waits for its turn; the others may wait for that warp
    at a barrier."""
    lives = e.lives
    longest = reduce_by(np.maximum, e.cycles_in(regions), lives.block, len(lives.blocks))
    return float(longest.sum() / max(float((lives.blocks.end - lives.blocks.begin).sum()), 1.0))


def waits_for_turn(e: Evidence, region: str) -> bool:
    """Whether a region is a wait for a lock or a flag, has a loop that polls one, or is run until it gets one."""
    if region in e.retried:
        return True
    if region in e.waiting:
        return e.wait_class(region) is WaitClass.LOCK
    return region in e.code and e.code[region].polls > 0


def _waits_for_copies(e: Evidence, region: str) -> bool:
    """Whether the code says that a wait ends when data has arrived, or has made room, and the memory is busy: no warp
    holds it up."""
    return e.memory_busy and region in e.code and e.wait_class(region) in (WaitClass.DATA, WaitClass.SPACE)


def _paced_by_memory(e: Evidence) -> bool:
    """Whether warps spend most of their time with loads: data that arrives piece by piece is also worked on piece by
    piece, with no lock."""
    loading = sum(share for region, share in e.fetching.items() if region in e.code and e.code[region].loads)
    loading += e.warps.unmarked if loads_outside(e) else 0.0
    return e.memory_busy or loading >= _MOSTLY_LOADS


def _judge(e: Evidence) -> Finding:
    work = e.warps
    wait = next(iter(e.waiting), "")
    evidence: dict[str, float | int | str] = {
        "resident_warps": work.resident,
        "working_warps": work.working,
        "waiting": work.waiting,
    }
    few = work.waiting > 0.5 and work.working < min(_MOST_WORKING * work.resident, 0.5 * work.sms)
    if few and not _waits_for_copies(e, wait):
        saved = max(work.waiting, _without_waits(e, work.waiting))
        return e.supported(
            CAUSE,
            f"The work is serialised: of {work.resident:,.0f} resident warps only {work.working:,.1f} work at a time, "
            f"the others wait at `{wait}` ({percent(work.waiting)} of warp time).",
            _ADVICE,
            e.gain(min(saved, _sure(e, wait)), saved),
            HIGH,
            region=wait,
            evidence=evidence,
            refuted_by=_REFUTED_BY,
        )
    locked = {region: share for region, share in e.warps.regions.items() if waits_for_turn(e, region)}
    share = max(sum(locked.values()), _held_blocks(e, list(locked)))
    if share > _LEAST_LOCKED:
        wait = next(iter(locked))
        only_waits = wait in e.waiting or wait in e.retried
        saved = max(share, _without_waits(e, max(share, work.waiting))) if only_waits else share
        return e.supported(
            CAUSE,
            f"Warps wait {percent(share)} of their time for their turn at `{wait}`: only "
            f"{min(work.working, (1 - share) * work.resident):,.0f} of "
            f"{work.resident:,.0f} resident warps work at a time."
            if only_waits
            else f"Warps spend {percent(share)} of their time in `{wait}`, whose code tries a lock or reads a flag "
            "until it may go on.",
            _ADVICE,
            e.gain(
                min(saved, _sure(e, wait)) if only_waits else max(share / 2, min(1 - 3 * (1 - share), _SURE)), saved
            ),
            HIGH,
            region=wait,
            evidence={**(evidence if only_waits else {}), "share_of_time": share},
            refuted_by=_REFUTED_BY,
        )
    section = None if _paced_by_memory(e) else exclusive_section(e)
    if section is not None:
        where = "on the whole device" if section.place == "device" else "in a block"
        held = f"; the others wait at `{wait}` ({percent(work.waiting)} of warp time)" if wait else ""
        return e.supported(
            CAUSE,
            f"`{section.region}` is serialised: never two warps at a time run it {where}, and together its instances "
            f"take {percent(section.share)} of the {'kernel' if section.place == 'device' else 'block'}'s time{held}.",
            _ADVICE,
            e.gain(section.share, roof=section.share),
            HIGH if wait else MEDIUM,
            region=section.region,
            evidence=evidence | {"section_share": section.share, "place": section.place},
            refuted_by=_REFUTED_BY,
        )
    return e.refuted(CAUSE, f"{work.working:,.0f} of {work.resident:,.0f} resident warps work at a time")


SERIALISED_SECTION = Hypothesis(
    CAUSE,
    _judge,
    explains=frozenset(
        {
            "unneeded barrier",
            "slow producer",
            "slow consumer",
            "too little in flight",
            "low occupancy",
            "warp imbalance",
            "block imbalance",
            "last wave",
            "too few blocks",
            "block turnover",
            "cache misses",
            "atomics contention",
            "unmarked time",
        }
    ),
    needs_headroom=False,
)
