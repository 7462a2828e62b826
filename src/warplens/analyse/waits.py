"""How much time warps wait, which warps wait, and for what."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from warplens.analyse.analysis import Analysis, AnswerTable, region_table
from warplens.analyse.kernel_lives import each_variant
from warplens.analyse.lifetimes import Float, Lifetimes
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.producers import Matches, match_waits
from warplens.analyse.role_waits import RoleWait, role_waits
from warplens.trace.model import Trace
from warplens.wording import percent

UNMARKED = "(nothing marked)"


@dataclass(frozen=True)
class RegionWait:
    """One waiting region: its share of all warp time, and how that divides among the regions waited for.

    `by_key` is the share of its matches that were made by values rather than by time.
    """

    region: str
    share: float
    waits_for: Mapping[str, float]
    by_key: float


@dataclass(frozen=True)
class Waits:
    """`share` is the waiting share of warp time; `producer` and `consumer` the same for the two sides of a pipeline."""

    share: float
    producer: float
    consumer: float
    roles: tuple[RoleWait, ...]
    regions: tuple[RegionWait, ...]


def waits(trace: Trace, *, waits: str | None = None, matches: Matches | None = None) -> PerKernel[Waits]:
    """Measure the waits of every kernel; `waits` is a regular expression for additional regions that only wait."""
    lives = Lifetimes.of(trace)
    kinds = lives.purposes(waits)
    found = (matches or match_waits(lives, kinds)).of_each_variant(lives)
    waiting = lives.waiting(waits)
    cells = lives.cells
    per_track = cells.by_track(cells.own, waiting, len(lives))
    roles = role_waits(trace, waits=waits)
    return PerKernel(
        {
            label: _of_variant(own, found[label], roles[label].roles, per_track[own.tracks])
            for label, own in each_variant(lives)
        }
    )


def _of_variant(lives: Lifetimes, found: Matches, roles: tuple[RoleWait, ...], per_track: Float) -> Waits:
    warp_cycles = max(float((lives.finish - lives.begin).sum()), 1.0)
    return Waits(
        share=float(per_track.sum() / warp_cycles),
        producer=max((each.share for each in roles if each.side == "producer"), default=0.0),
        consumer=max((each.share for each in roles if each.side == "consumer"), default=0.0),
        roles=roles,
        regions=_regions(lives, found, warp_cycles),
    )


def _regions(lives: Lifetimes, found: Matches, warp_cycles: float) -> tuple[RegionWait, ...]:
    wait, producer, by_key = found.wait, found.producer, found.by_key
    many = len(lives.regions)
    target = np.where(producer >= 0, lives.region[np.maximum(producer, 0)], many).astype(np.int64)
    # Only pairs that occur: a table of all pairs of regions would be larger than the trace.
    pairs, which = np.unique(lives.region[wait] * (many + 1) + target, return_inverse=True)
    time = np.bincount(which, weights=lives.exclusive[wait])
    waiting, awaited = np.divmod(pairs, many + 1)
    totals = np.bincount(waiting, weights=time, minlength=many)
    keyed = np.bincount(lives.region[wait], weights=by_key, minlength=many)
    matched = np.bincount(lives.region[wait], weights=producer >= 0, minlength=many)
    out = []
    for code in np.argsort(-totals, kind="stable").tolist():
        total = float(totals[code])
        if total <= 0:
            break
        own = slice(*np.searchsorted(waiting, (code, code + 1)))
        ordered = np.argsort(-time[own], kind="stable")
        shares = {
            lives.regions[at] if at < many else UNMARKED: float(cycles / total)
            for at, cycles in zip(awaited[own][ordered].tolist(), time[own][ordered].tolist(), strict=True)
            if cycles
        }
        ratio = float(keyed[code] / matched[code]) if matched[code] else 0.0
        out.append(RegionWait(lives.regions[code], total / warp_cycles, shares, ratio))
    return tuple(out)


def waits_table(kernel: str, one: Waits) -> AnswerTable:
    """Each waiting region's share of warp time, and what it waits for."""
    title = f"{kernel}: {percent(one.share)} of warp time waits"
    if one.producer or one.consumer:
        title += f" (producers {percent(one.producer)}, consumers {percent(one.consumer)})"
    return region_table(
        title,
        one.regions,
        ("share", lambda row: percent(row.share)),
        ("waits for", lambda row: ", ".join(f"{n} {percent(s)}" for n, s in list(row.waits_for.items())[:3])),
        ("matched by values", lambda row: percent(row.by_key)),
    )


WAITS = Analysis("waits", run=lambda ask: waits(ask.trace, waits=ask.waits, matches=ask.matches), table=waits_table)
