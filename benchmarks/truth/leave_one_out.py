"""How the stated intervals do on a set that their two constants were not chosen with.

The constants say how far the odds of a measured gain fall short of an estimate, and by how much they exceed it
(warplens/analyse/finding.py). For each set, they are chosen so that the intervals of the other sets hold every gain,
or as many as possible, and are narrowest on average.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.truth.score import Row, score
from warplens.analyse import finding
from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import Gain

_LESS = [at / 20 for at in range(2, 16)]
_MORE = [1 + at / 5 for at in range(1, 21)]


@dataclass(frozen=True)
class Stated:
    """The first finding about a broken version, with the estimate that its interval is around, where it has one."""

    row: Row
    estimate: tuple[Any, ...] | None

    def interval(self, less: float, more: float) -> Gain:
        if self.estimate is None:
            return Gain(self.row.low, self.row.high)
        with _constants(less, more):
            return Gain.around(*self.estimate)


@contextmanager
def _constants(less: float, more: float) -> Iterator[None]:
    before = finding._FALLS_SHORT, finding._EXCEEDS
    finding._FALLS_SHORT, finding._EXCEEDS = less, more
    try:
        yield
    finally:
        finding._FALLS_SHORT, finding._EXCEEDS = before


def stated(folder: Path, suffix: str = "") -> list[Stated]:
    """What is stated about the broken versions whose repair gained something."""
    around: dict[Gain, tuple[Any, ...]] = {}
    made = Evidence.gain

    def noted(e: Evidence, least: float, most: float | None = None, roof: float = 1.0) -> Gain:
        gain = made(e, least, most, roof)
        around[gain] = (least, most, min(roof, e.most_gain))
        return gain

    Evidence.gain = noted  # type: ignore[method-assign]
    try:
        rows, _ = score(folder, suffix)
    finally:
        Evidence.gain = made  # type: ignore[method-assign]
    return [Stated(row, around.get(Gain(row.low, row.high))) for row in rows if row.broken and row.measured is not None]


@dataclass(frozen=True)
class Held:
    """How many gains are inside, of how many whose cause is right, and how wide the intervals are."""

    inside: int
    of: int
    median: float
    mean: float


def held(some: Sequence[Stated], less: float, more: float) -> Held:
    gains = [one.interval(less, more) for one in some]
    judged = [replace(one.row, low=gain.low, high=gain.high).gain_inside for one, gain in zip(some, gains, strict=True)]
    widths = sorted(gain.high - gain.low for gain in gains)
    known = [inside for inside in judged if inside is not None]
    return Held(sum(known), len(known), widths[len(widths) // 2], sum(widths) / len(widths))


def tuned(some: Sequence[Stated]) -> tuple[float, float]:
    """The constants whose intervals hold the most gains, and of those the narrowest ones."""
    tried = {(less, more): held(some, less, more) for less in _LESS for more in _MORE}
    return min(tried, key=lambda pair: (-tried[pair].inside, round(tried[pair].mean, 6), math.prod(pair)))


def leave_one_out(folders: Sequence[Path]) -> list[str]:
    """A Markdown table: for each set, the constants that the others give, and how it does with them."""
    sets = [(stated(folder), stated(folder, ".auto")) for folder in folders]
    lines = [
        "| set left out | constants from the others | gains inside, width (hand-written marks) | (automatic marks) |",
        "|---|---|---|---|",
    ]
    for at, own in enumerate(sets):
        less, more = tuned([one for other in sets if other is not own for part in other for one in part])
        cells = [
            f"{score.inside} of {score.of}, {score.median:.0%}" for score in (held(part, less, more) for part in own)
        ]
        lines.append(f"| {at + 1} | {less:.2f}, {more:.1f} | {' | '.join(cells)} |")
    return lines
