"""How many warps were resident at a time, how many of them worked, and how warp time divides among regions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.region_purpose import Purpose
from warplens.trace.schema import LIFE


@dataclass(frozen=True)
class Parallelism:
    """Warps of the whole device, averaged over the launches of a variant.

    `regions` has the share of warp time of each region, in exclusive time; `unmarked` is the rest.
    """

    resident: float
    working: float
    sms: float
    """SMs that ran blocks."""
    regions: Mapping[str, float]
    unmarked: float

    @property
    def waiting(self) -> float:
        """The share of warp time spent in regions that wait."""
        return 1 - self.working / self.resident if self.resident else 0.0

    @property
    def per_sm(self) -> float:
        """Resident warps per SM that ran blocks."""
        return self.resident / max(self.sms, 1.0)


def parallelism(lives: Lifetimes, label: str, kinds: list[Purpose]) -> Parallelism:
    """Measure the warps of one variant."""
    launches = lives.launches_of(label)
    tracks = np.flatnonzero(lives.tracks_of(label))
    cells = lives.cells
    own = cells.by_region(cells.own, lives.tracks_of(label), len(lives.regions))
    waits = np.array([kind is Purpose.WAIT for kind in kinds], bool)
    alive_ns = float((lives.finish_ns - lives.begin_ns)[tracks].sum())
    lived = max(float((lives.finish - lives.begin)[tracks].sum()), 1.0)
    infos = [lives.launches[at].info for at in launches.tolist()]
    known = sum(info.busy_cycles for info in infos if info)
    busy = max(known if all(infos) and known else 0.0, lived)
    total = float(sum(lives.launches[at].duration_ns for at in launches.tolist())) or 1.0
    scale = _unrecorded(lives, launches.tolist())
    resident = scale * alive_ns * (busy / lived) / total
    shares = own / busy
    if LIFE in lives.regions:
        shares[lives.regions.index(LIFE)] = 0.0  # the life of a warp is no region
    return Parallelism(
        resident=resident,
        working=resident * (1 - float(shares[waits].sum())),
        sms=float(np.mean([_used(lives, at) for at in launches.tolist()])),
        regions={lives.regions[code]: float(shares[code]) for code in np.argsort(-shares) if shares[code] > 0},
        unmarked=max(1 - float(shares.sum()), 0.0),
    )


def _used(lives: Lifetimes, at: int) -> int:
    return len(np.unique(lives.all_blocks_of(at).sm))


def _unrecorded(lives: Lifetimes, launches: list[int]) -> float:
    """Blocks that were not recorded held warps too, in proportion to their lifetimes, or as long as the others."""
    recorded = sum(
        float((lives.blocks.end_ns[of] - lives.blocks.begin_ns[of]).sum()) for of in map(lives.blocks_of, launches)
    )
    parts = [(lives.all_blocks_of(at), lives.launches[at].blocks_per_known) for at in launches]
    whole = sum(float((part.end - part.begin).sum()) * more for part, more in parts)
    return whole / recorded if recorded else 1.0
