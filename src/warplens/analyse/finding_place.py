"""Where a finding's evidence is on the timeline: a launch, a stretch of time, and the warp that shows it best."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from warplens.analyse.finding import Finding
from warplens.analyse.groups import reduce_by
from warplens.analyse.hypotheses.block_balance import CAUSE as BLOCK_IMBALANCE
from warplens.analyse.hypotheses.last_wave import CAUSE as LAST_WAVE
from warplens.analyse.hypotheses.launch_ramp import CAUSE as LAUNCH_RAMP
from warplens.analyse.kernel_lives import lives_of
from warplens.analyse.lifetimes import Int, Lifetimes
from warplens.trace.model import Trace

_TAILS = (BLOCK_IMBALANCE, LAST_WAVE)
"""Causes whose evidence is the end of a launch, where some SMs have nothing to do."""


@dataclass(frozen=True)
class FindingPlace:
    """The evidence of a finding in one launch.

    `block` and `warp` name the warp to open. `region`, `sms`, `blocks` and `warps` say which spans to highlight; empty
    ones do not restrict them.
    """

    rank: int
    launch: int
    begin_ns: int
    end_ns: int
    block: int
    warp: int
    region: str
    sms: tuple[int, ...]
    blocks: tuple[int, ...]
    warps: tuple[int, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def finding_place(one: Finding, trace: Trace) -> FindingPlace | None:
    """The place in the longest launch of the finding's kernel; None if the trace has no span of it.

    `trace` may be a part of the trace that the finding is about: blocks, warps and SMs that it lacks are left out.
    """
    whole = Lifetimes.of(trace)
    if not len(whole.launches_of(one.kernel)):
        return None
    lives = lives_of(whole, one.kernel)
    launch = max(range(len(lives.launches)), key=lambda at: lives.launches[at].duration_ns)
    tracks = np.flatnonzero(lives.launch == launch)
    named = {"sms": lives.sm, "blocks": lives.blocks.number[lives.block], "warps": lives.warp}
    kept: dict[str, tuple[int, ...]] = {}
    for name, values in named.items():
        inside = tracks[np.isin(values[tracks], getattr(one, name))]
        kept[name] = tuple(np.unique(values[inside]).tolist())
        tracks = inside if len(inside) else tracks
    at_an_end = one.kind in (LAUNCH_RAMP, *_TAILS)
    found = _region_place(lives, tracks, one.region) if one.region and not at_an_end else None
    track, begin, end = found or _launch_place(lives, launch, tracks, one.kind)
    return FindingPlace(
        rank=lives.launches[launch].rank,
        launch=lives.launches[launch].number,
        begin_ns=begin,
        end_ns=max(end, begin + 1),
        block=int(lives.blocks.number[lives.block[track]]),
        warp=int(lives.warp[track]),
        region=one.region if found else "",
        **kept,
    )


def _region_place(lives: Lifetimes, tracks: Int, region: str) -> tuple[int, int, int] | None:
    """The block in which the region took most time: its warp with most of it, and the time of its spans."""
    if region not in lives.region_codes:
        return None
    rows = lives.rows_of(tracks)
    rows = rows[(lives.region[rows] == lives.region_codes[region]) & lives.is_span[rows]]
    if not len(rows):
        return None
    of_row, length = lives.track_of(rows), lives.duration[rows]
    inside = lives.block[of_row] == _longest(lives.block[of_row], length)
    track = _longest(of_row[inside], length[inside])
    begin = lives.trace.numpy("start_ns")[rows[inside]]
    return track, int(begin.min()), int((begin + lives.trace.numpy("dur_ns")[rows[inside]]).max())


def _longest(group: Int, length: Int) -> int:
    """The group with the largest sum of lengths; they may all be 0."""
    groups, at = np.unique(group, return_inverse=True)
    return int(groups[np.bincount(at, weights=length).argmax()])


def _launch_place(lives: Lifetimes, launch: int, tracks: Int, kind: str) -> tuple[int, int, int]:
    """A stretch of a launch: its start or end where that is the evidence, else the time of the given tracks."""
    one = lives.launches[launch]
    everything = np.flatnonzero(lives.launch == launch)
    sms, sm = np.unique(lives.sm[everything], return_inverse=True)
    if kind == LAUNCH_RAMP:
        late = int(reduce_by(np.minimum, lives.begin_ns[everything], sm, len(sms)).max())
        track = int(everything[lives.begin_ns[everything] == late][0])
        return track, one.begin_ns, late + (late - one.begin_ns) // 4
    if kind in _TAILS:
        first_idle = int(reduce_by(np.maximum, lives.finish_ns[everything], sm, len(sms)).min())
        return int(tracks[lives.finish_ns[tracks].argmax()]), first_idle, one.end_ns
    track = int(tracks[(lives.finish_ns - lives.begin_ns)[tracks].argmax()])
    if len(tracks) < len(everything):
        return track, int(lives.begin_ns[tracks].min()), int(lives.finish_ns[tracks].max())
    return track, one.begin_ns, one.end_ns
