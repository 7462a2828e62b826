"""How many warps were resident at a time, how many of them worked, and how warp time divides among regions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from warplens.analyse.lifetimes import Lifetimes, Mask
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


def parallelism(lives: Lifetimes, waits: Mask) -> Parallelism:
    """Measure the warps of one variant, whose lifetimes `lives` are; `waits` says which regions wait."""
    cells, launches = lives.cells, range(len(lives.launches))
    own = np.bincount(cells.region, cells.own, len(lives.regions)).astype(np.float64)
    alive_ns = float((lives.finish_ns - lives.begin_ns).sum())
    lived = max(float((lives.finish - lives.begin).sum()), 1.0)
    infos = [launch.info for launch in lives.launches]
    known = sum(info.busy_cycles for info in infos if info)
    found = np.flatnonzero(own > 0)
    longest = found[np.argsort(-own[found], kind="stable")].tolist()
    busy = max(known if all(infos) and known else 0.0, lived)
    total = float(sum(launch.duration_ns for launch in lives.launches)) or 1.0
    scale = _unrecorded(lives, launches)
    resident = scale * alive_ns * (busy / lived) / total
    shares = own / busy
    if LIFE in lives.region_codes:
        shares[lives.region_codes[LIFE]] = 0.0  # the life of a warp is no region
    return Parallelism(
        resident=resident,
        working=resident * (1 - float(shares[waits].sum())),
        sms=float(np.mean([_used(lives, at) for at in launches])),
        regions={lives.regions[code]: float(shares[code]) for code in longest if shares[code] > 0},
        unmarked=max(1 - float(shares.sum()), 0.0),
    )


def _used(lives: Lifetimes, at: int) -> float:
    """SMs that ran blocks. Where most blocks are unknown, they ran on others of the device's SMs, too."""
    launch = lives.launches[at]
    return min(len(np.unique(lives.all_blocks_of(at).sm)) * launch.blocks_per_known, float(launch.sms))


def _unrecorded(lives: Lifetimes, launches: Sequence[int]) -> float:
    """Blocks that were not recorded held warps too, in proportion to their lifetimes, or as long as the others."""
    recorded = sum(
        float((lives.blocks.end_ns[of] - lives.blocks.begin_ns[of]).sum()) for of in map(lives.blocks_of, launches)
    )
    parts = [(lives.all_blocks_of(at), lives.launches[at].blocks_per_known) for at in launches]
    whole = sum(float((part.end - part.begin).sum()) * more for part, more in parts)
    return whole / recorded if recorded else 1.0
