"""How much time passes outside all regions, and which lines to mark next?"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, Finding, Gain
from warplens.analyse.finding import UNMARKED_TIME as CAUSE
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.hypotheses.pipeline_sides import sides_of
from warplens.analyse.line_times import parse
from warplens.analyse.role_waits import ROLES, is_unmarked
from warplens.wording import numbered, percent, plural

_LEAST = 0.25
_MOST_PLACES = 3


@dataclass(frozen=True)
class UnmarkedPlace:
    """Time between the end of one region and the begin of the next, as a share of warp time. An empty name is the
    warp's start or exit."""

    after: str
    before: str
    share: float
    count: int = 0
    """How often warps were there."""


def unmarked_places(e: Evidence, idle: float = 0.0) -> list[UnmarkedPlace]:
    """Where warps are outside all regions, the longest first; `idle` is the share of warps that run no region."""
    lives = e.lives
    rows = lives.rows_of(np.arange(len(lives)))
    rows = rows[lives.is_span[rows] & (lives.parent[rows] < 0) & ~lives.detached[rows]]
    if len(rows) < 2:
        return []
    many = len(lives.regions)
    track = lives.track_of(rows)
    same = track[1:] == track[:-1]
    gap = np.maximum(lives.start[rows[1:]] - lives.end[rows[:-1]], 0)[same]
    key = (lives.region[rows[:-1]].astype(np.int64) * many + lives.region[rows[1:]])[same]
    pairs, pair = np.unique(key, return_inverse=True)
    total, count = np.bincount(pair, weights=gap), np.bincount(pair)
    infos = e.infos
    lived = float((lives.finish - lives.begin).sum())
    busy = max(float(sum(info.busy_cycles for info in infos)), lived, 1.0)
    longest = [at for at in np.argsort(-total, kind="stable")[: _MOST_PLACES + 1].tolist() if total[at]]
    between = [[lives.regions[code] for code in divmod(int(pairs[at]), many)] for at in longest]
    found = [
        UnmarkedPlace(after, before, float(total[at] / busy), int(count[at]))
        for at, (after, before) in zip(longest, between, strict=True)
    ]
    found.append(UnmarkedPlace("", "", 1 - lived / busy - idle))
    return sorted(found, key=lambda place: -place.share)


def _judge(e: Evidence) -> Finding:
    idle = _idle_warps(e)
    share = max(e.warps.unmarked - idle, 0.0) / max(1 - idle, 1e-9)
    if share < _LEAST:
        return e.refuted(CAUSE, f"{percent(1 - share)} of warp time is inside regions")
    places = [place for place in unmarked_places(e, idle) if place.share >= 0.02][:_MOST_PLACES]
    if e.cut_off:
        return e.undecided(
            CAUSE,
            f"{percent(share)} of warp time has no records, but warps made more than fit: whether it is marked is not "
            "known.",
            "Record it with a larger records_per_warp=.",
            Gain.between(0.0, 0.0),
        )
    listed = "; ".join(f"{_place(e, place)} ({percent(place.share)})" for place in places)
    where = f", mostly {listed}" if listed else ""
    lines = [line for place in places if (line := _lines(e, place))]
    first = f"Mark {', '.join(dict.fromkeys(lines))}" if lines else "Mark the rest of the kernel"
    return e.supported(
        CAUSE,
        f"{percent(share)} of warp time lies outside all regions{where}: what happens there is not known."
        f"{_without_marks(e)}{_made_of(e)}",
        f"{first}, or let warplens mark it (`warplens run --auto`).",
        Gain.between(0.0, 0.5 * share),
        HIGH,
        region=places[0].after if places else "",
        evidence={"unmarked_share": share},
        refuted_by="Marks that cover these lines.",
    )


def _idle_warps(e: Evidence) -> float:
    """The share of warp time of warps that run no region, where the others have roles: a role may leave warps idle."""
    if sides_of(e) is None:
        return 0.0
    lives = e.lives
    ran = len(np.unique(lives.warp[lives.has_regions]))
    warps = max((math.ceil(math.prod(info.block) / 32) for info in e.infos), default=ran)
    return max(1 - ran / warps, 0.0)


def _without_marks(e: Evidence) -> str:
    """Which warps left no record, where others of their block did."""
    roles = e.of(ROLES).roles
    warps = [warp for one in roles if is_unmarked(one.role) for warp in one.role.warps]
    return f" Nothing is marked in {numbered('warp', warps)} of a block." if warps and len(roles) > 1 else ""


def _made_of(e: Evidence) -> str:
    """What the code outside all regions has that takes time, where it is known."""
    code = e.code.get("")
    if code is None:
        return ""
    kinds = {"barrier": code.barriers, "global atomic": code.atomics, "global load": code.loads, "copy": code.copies}
    named = [plural(int(count), noun) for noun, count in kinds.items() if count]
    return f" Its code has {', '.join(named)}." if named else ""


def _place(e: Evidence, place: UnmarkedPlace) -> str:
    if not place.after:
        return "before the first and after the last region of a warp"
    if place.after == place.before:
        return f"between two instances of `{place.after}`"
    return f"between `{place.after}` and `{place.before}`"


def _lines(e: Evidence, place: UnmarkedPlace) -> str:
    """The lines between two marks, where both are in one file."""
    first, last = (parse(e.locations.get(name, "")) for name in (place.after, place.before))
    if first is None or last is None or first[0] != last[0]:
        return ""
    if first[1] == last[1]:
        return f"the lines around {first[0]}:{first[1]}"
    low, high = sorted((first[1], last[1]))
    return f"{first[0]}:{low + 1}-{high - 1}" if high - low > 1 else f"the lines around {first[0]}:{low}"


UNMARKED_TIME = Hypothesis(CAUSE, _judge, needs_headroom=False)
