"""What the overhead budget leaves out of a kernel: the records of most blocks first, then the densest regions, and last
all marks, so that only the lifetimes of the warps are left."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from warplens.launch.block_sampler import headers_of
from warplens.record.aggregate_rows import AGGREGATE, AggregateLayout, read_aggregates
from warplens.record.capture import Dim3, Launch
from warplens.record.layout import (
    HEADER_BYTES,
    KIND_BITS,
    MAX_REGION,
    REGION_SHIFT,
    SLOT_BYTES,
    TAG_SHIFT,
    TRACK_MAGIC,
    Kind,
)
from warplens.weave.weaving import Selection, Weaving

SAMPLE_BLOCKS = 512
"""The fewest blocks of a launch that is sampled: with one wave the slowest block, a recorded one, ends the kernel."""
SAMPLE_STEPS = {SAMPLE_BLOCKS: 17, 4 * SAMPLE_BLOCKS: 31, 16 * SAMPLE_BLOCKS: 61}
"""Every how many blocks are recorded in a sample of a launch, by the fewest blocks of such a launch: at least 30, and
of large ones at least 134. Odd primes: a power of two would choose the same column of most grids again and again."""
SPARSER_STEPS = (31, 61, 127)
"""What a sample is followed by that is not within the budget: about half of its blocks."""
FEWEST_SAMPLED = 30
"""The fewest blocks that such a sample has."""
EVERY_BLOCK = 1 << 30
MOST_TRACKS = 1024
"""Tracks in which the records of a launch are counted."""
REPEATED = 2
"""How many times as often as the rarest region another one must be executed to be in a loop."""
SAFETY = 0.8
"""Of the budget, what the regions that are kept may cost by calculation: code moves when marks go."""


@dataclass(frozen=True)
class Thinning:
    """What a weaving leaves out: `step` records every n-th block, `omitted` regions have no marks. With `flat`, it is
    only launched with grids of one row, so that its blocks find their index in one instruction. With `lives`, it has no
    automatic marks: only the lifetimes of its warps are recorded."""

    step: int = 1
    omitted: frozenset[str] = frozenset()
    flat: bool = False
    lives: bool = False

    def __bool__(self) -> bool:
        return self.step > 1 or bool(self.omitted) or self.lives

    def of(self, how: Weaving) -> Weaving:
        """The weaving with this left out."""
        if self.step > 1:
            select = replace(how.select, blocks=(self.step // 2, EVERY_BLOCK, self.step), flat=self.flat)
            how = replace(how, select=select, plain_copy=True)
        return replace(how, omit=(*how.omit, *sorted(self.omitted)), lives=how.lives or self.lives)

    def __str__(self) -> str:
        parts = [f"one block in {self.step} is recorded"] if self.step > 1 else []
        if self.lives:
            parts.append("only the lifetimes of its warps are recorded")
        elif self.omitted:
            parts.append(f"{', '.join(map(repr, sorted(self.omitted)))} left out")
        return ", ".join(parts) or "all marks of all blocks"


ALL_MARKS = Thinning()


@dataclass(frozen=True)
class RegionDensity:
    """The records of a region in one launch, and the cycles that it lasted, added up."""

    records: int
    cycles: float

    @property
    def spacing(self) -> float:
        """Cycles of the region per record: the fewer, the more its marks cost for what they tell."""
        return self.cycles / self.records if self.records else math.inf


def samples_of(how: Selection, grid: Dim3) -> tuple[Thinning, ...]:
    """What is left out of a launch when its blocks are sampled, the most blocks first; empty if they cannot be."""
    blocks = math.prod(grid)
    if how != Selection() or blocks < min(SAMPLE_STEPS):
        return ()
    step = max(step for fewest, step in SAMPLE_STEPS.items() if blocks >= fewest)
    sparser = next((one for one in SPARSER_STEPS if one > step and blocks // one >= FEWEST_SAMPLED), None)
    flat = grid[1] == grid[2] == 1
    return tuple(Thinning(one, flat=flat) for one in (step, sparser) if one is not None)


def densities(launch: Launch) -> dict[str, RegionDensity]:
    """Count the records of each region, and add up how long it lasted, without pairing begins with ends."""
    if AGGREGATE in launch.extra:
        return _aggregated(launch)
    every = -(-launch.tracks // MOST_TRACKS)
    headers = headers_of(launch)[::every]
    slots = launch.raw.reshape(launch.tracks, launch.stride)[::every, HEADER_BYTES:]
    words = np.ascontiguousarray(slots[:, : launch.capacity * SLOT_BYTES]).view("<u4").reshape(len(headers), -1, 2)
    written = np.minimum(headers["written"].astype(np.int64), launch.capacity)
    begun = (headers["magic"] == TRACK_MAGIC) & (headers["state"] != 0)
    used = np.arange(launch.capacity) < np.where(begun, written, 0)[:, None]
    kind = words[..., 0] & ((1 << KIND_BITS) - 1)
    used[:, :-1] &= ~_have_payload(used & ((kind == Kind.VALUE) | (kind == Kind.ANCHOR)))[:, 1:]
    kind = np.where(kind == Kind.ANCHOR, words[..., 0] >> TAG_SHIFT, kind)  # a record with a 64-bit clock
    region = np.where(used, words[..., 0] >> REGION_SHIFT & MAX_REGION, 0)
    since = (words[..., 1] - headers["start_clock"].astype(np.uint32)[:, None]).astype(np.uint32).astype(np.float64)
    sign = np.where(kind == Kind.END, 1.0, np.where(kind == Kind.BEGIN, -1.0, 0.0)) * used
    count = np.bincount(region[used].ravel(), minlength=1)
    cycles = np.bincount(region.ravel(), (sign * since).ravel(), minlength=1)
    return {
        name: RegionDensity(int(count[number]), max(float(cycles[number]), 0.0))
        for number, name in launch.regions.items()
        if number < len(count) and count[number]
    }


def _aggregated(launch: Launch) -> dict[str, RegionDensity]:
    """The same from statistics that the warps kept; an execution counts as two records."""
    layout = AggregateLayout.restore(launch.extra[AGGREGATE])
    found = read_aggregates(layout, launch.raw.reshape(launch.tracks, launch.stride)[:, HEADER_BYTES:])
    known: dict[str, RegionDensity] = {}
    for number, row in enumerate(layout.rows):
        name = launch.regions[row.region]
        before = known.get(name, RegionDensity(0, 0.0))
        records = before.records + 2 * int(found.count[:, number].sum())
        known[name] = RegionDensity(records, before.cycles + float(found.total[:, number].sum()))
    return known


def _have_payload(looks: npt.NDArray[np.bool_]) -> npt.NDArray[np.bool_]:
    """Which slots hold records with a payload in the slot before them, of those that look so: payloads may as well.

    The last slot of a run that looks so is a record, the one before it its payload, and so on alternately.
    """
    at = np.arange(looks.shape[1])
    beyond = np.where(looks, looks.shape[1], at)
    run_end = np.minimum.accumulate(beyond[:, ::-1], axis=1)[:, ::-1] - 1
    return np.asarray(looks & ((run_end - at) % 2 == 0))


def regions_to_omit(known: Mapping[str, RegionDensity], slowdown: float, budget: float) -> frozenset[str]:
    """The densest regions, without which the others cost no more than the budget by calculation; one is always kept.

    Each record is taken to cost the same. Instants and values go first, then regions that are executed most often. Of
    those that are executed about as often, the shortest go first, since their records tell about fewer cycles.
    """
    most = max((one.records for one in known.values()), default=1)

    def worth(name: str) -> tuple[bool, int, float, str]:
        one = known[name]
        return one.cycles > 0, round(math.log2(most / one.records)), one.spacing, name

    order = sorted(known, key=worth)
    total = sum(one.records for one in known.values())
    allowed = total * SAFETY * budget / max(slowdown - 1, budget)
    gone: list[str] = []
    for name in order[:-1]:
        if total <= allowed:
            break
        total -= known[name].records
        gone.append(name)
    return frozenset(gone)


def repeated_regions(known: Mapping[str, RegionDensity]) -> frozenset[str]:
    """The regions in loops: those that are executed several times as often as the rarest."""
    rarest = min((one.records for one in known.values()), default=1)
    return frozenset(name for name, one in known.items() if one.records > REPEATED * rarest)


def next_thinning(
    tried: Sequence[tuple[Thinning, float]],
    known: Mapping[str, RegionDensity],
    budget: float,
    samples: Sequence[Thinning],
    *,
    last: bool = False,
) -> Thinning | None:
    """What to leave out after the weavings that were tried, each with its slowdown; None if nothing more helps.

    Fewer blocks come first, because every region keeps its marks. If that slowed the kernel down no less, all blocks
    are recorded again, with fewer regions. The `last` weaving that may be tried has no marks in loops.
    """
    now, slowdown = tried[-1]
    if not now.omitted:
        before = [one for one in tried[:-1] if not one[0].omitted]
        helps = all(slowdown < earlier for _, earlier in before)
        sparser = next((one for one in samples if one.step > now.step), None)
        if sparser is not None and helps:
            return sparser
        if not helps:
            now, slowdown = min(before, key=lambda one: one[1])
    gone = regions_to_omit(known, slowdown, budget) | (repeated_regions(known) if last else frozenset())
    gone -= now.omitted
    return replace(now, omitted=now.omitted | gone) if gone else None


def lives_alone(tried: Sequence[tuple[Thinning, float]], samples: Sequence[Thinning]) -> Thinning:
    """The weaving that costs least: no automatic marks, in the smallest sample if recording some blocks helped."""
    best, _ = min(tried, key=lambda one: one[1])
    fewest = samples[-1] if samples and best.step > 1 else best
    return replace(fewest, omitted=best.omitted, lives=True)
