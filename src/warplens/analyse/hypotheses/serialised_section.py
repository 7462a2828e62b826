"""Is work serialised: by a lock, a turn or a chain of flags that lets one warp work while the others wait?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.intervals import length, union
from warplens.analyse.lifetimes import Int
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
_LEAST_SHARE = 0.3
_LEAST_LOCKED = 0.15
_LEAST_WARPS = 4
_LEAST_BLOCKS = 8


@dataclass(frozen=True)
class Section:
    """A region that many warps run and never two at a time: on the whole device, or in each block."""

    region: str
    place: str
    share: float
    """Of the kernel's time on the device, or of the blocks' time in a block."""


def exclusive_section(e: Evidence) -> Section | None:
    """The region whose instances exclude one another and take up the time. Names play no role."""
    found = [one for region in e.warps.regions if (one := _of_region(e, region)) is not None]
    return max(found, key=lambda one: one.share, default=None)


def _of_region(e: Evidence, region: str) -> Section | None:
    if e.kinds[region] is Purpose.WAIT or region == LIFE:
        return None
    lives = e.lives
    rows = lives.spans_of(e.label)
    chosen = np.flatnonzero(lives.region[rows] == lives.regions.index(region))
    mine = chosen if isinstance(rows, slice) else rows[chosen]
    tracks = lives.of_row[mine]
    ns = e.trace.numpy("dur_ns")[mine]
    blocks = lives.block[tracks]
    if len(np.unique(blocks)) >= _LEAST_BLOCKS * len(e.launches):
        share = float(ns.sum() / e.durations_ns.sum())
        if _LEAST_SHARE <= share <= 1.1 and _exclude(e.trace.numpy("start_ns")[mine], ns, lives.launch[tracks]):
            return Section(region, "device", min(share, 1.0))
    warps = np.bincount(np.unique(tracks) * 0 + lives.block[np.unique(tracks)], minlength=len(lives.blocks))
    used = np.flatnonzero(warps)
    lasted = float((lives.blocks.end - lives.blocks.begin)[used].sum())
    if np.median(warps[used]) >= _LEAST_WARPS and lasted:
        share = float(lives.duration[mine].sum() / lasted)
        if _LEAST_SHARE <= share <= 1.05 and _exclude(lives.start[mine], lives.duration[mine], blocks):
            return Section(region, "block", min(share, 1.0))
    return None


def _exclude(start: Int, lasted: Int, place: Int) -> bool:
    """Whether intervals at the same place do not overlap, apart from the error of the clock."""
    first = int(start.min())
    axis = place * (int((start + lasted).max()) - first + 1) - first + start
    return length(*union(axis, axis + lasted)) >= 0.95 * float(lasted.sum())


def _without_waits(e: Evidence) -> float:
    """The share of the kernel's time that is left if blocks take only the time that their warps do not wait."""
    lives = e.lives
    tracks = np.flatnonzero(lives.tracks_of(e.label))
    alone = (1 - e.warps.waiting) * float((lives.finish_ns - lives.begin_ns)[tracks].mean())
    return 1 - 0.8 * alone * math.ceil(e.of(WAVES).waves) / e.kernel_ns


def _judge(e: Evidence) -> Finding:
    work = e.warps
    wait = next(iter(e.waiting), "")
    evidence: dict[str, float | int | str] = {
        "resident_warps": work.resident,
        "working_warps": work.working,
        "waiting": work.waiting,
    }
    if work.waiting > 0.5 and work.working < min(_MOST_WORKING * work.resident, 0.5 * work.sms):
        left = 1 - work.waiting
        return e.supported(
            CAUSE,
            f"The work is serialised: of {work.resident:,.0f} resident warps only {work.working:,.1f} work at a time, "
            f"the others wait at `{wait}` ({percent(work.waiting)} of warp time).",
            _ADVICE,
            Gain.between(max(work.waiting / 2, 1 - 3 * left), 1 - left / 2),
            HIGH,
            region=wait,
            evidence=evidence,
            refuted_by=_REFUTED_BY,
        )
    locked = {region: share for region, share in e.waiting.items() if e.wait_class(region) is WaitClass.LOCK}
    share = sum(locked.values())
    if share > _LEAST_LOCKED:
        wait = next(iter(locked))
        return e.supported(
            CAUSE,
            f"Warps wait {percent(share)} of their time for their turn at `{wait}`: of {work.resident:,.0f} resident "
            f"warps {work.working:,.0f} work at a time.",
            _ADVICE,
            Gain.between(0.6 * share, max(share, _without_waits(e))),
            HIGH,
            region=wait,
            evidence=evidence | {"waiting_for_turn": share},
            refuted_by=_REFUTED_BY,
        )
    section = exclusive_section(e)
    if section is not None:
        where = "on the whole device" if section.place == "device" else "in a block"
        held = f"; the others wait at `{wait}` ({percent(work.waiting)} of warp time)" if wait else ""
        return e.supported(
            CAUSE,
            f"`{section.region}` is serialised: never two warps at a time run it {where}, and together its instances "
            f"take {percent(section.share)} of the {'kernel' if section.place == 'device' else 'block'}'s time{held}.",
            _ADVICE,
            Gain.between(0.5 * section.share, section.share),
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
