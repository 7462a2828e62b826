"""How often each region is executed one after the other from the start of a launch to its end.

A delay of d cycles in a region makes a launch at most d times this count longer, unless its warps take turns in it.
Blocks that follow each other on an SM add up; of the warps of a block, which run side by side, the one that executes
the region most often counts. The blocks that lead to the last one count, and where those never execute the region,
the blocks that execute it most often.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from warplens.analyse.chains import Chains
from warplens.analyse.groups import reduce_by
from warplens.analyse.lifetimes import Lifetimes
from warplens.trace.model import Trace


@dataclass(frozen=True)
class PathExecutions:
    """One recorded launch: its number, length and clock, and how often each region is executed along its path."""

    launch: int
    kernel: str
    ns: float
    cycles_per_ns: float
    counts: dict[str, int]

    @property
    def cycles(self) -> float:
        return self.ns * self.cycles_per_ns


def path_executions(trace: Trace) -> list[PathExecutions]:
    """Count for every launch of a trace."""
    lives = Lifetimes.of(trace)
    if not len(lives):
        return []
    chains = Chains(lives)
    regions = np.unique(lives.region[lives.is_span])
    per_block = {
        int(code): reduce_by(np.maximum, _per_track(lives, int(code)), lives.block, len(lives.blocks))
        for code in regions
    }
    along = {code: chains.along(count) for code, count in per_block.items()}
    out = []
    for at, launch in enumerate(lives.launches):
        of = lives.blocks_of(at)
        if of.start == of.stop:
            continue
        last = int(of.start) + int(lives.blocks.end_ns[of].argmax())
        chain = chains.to(last)
        counts = {
            lives.regions[code]: int(count[chain].sum()) or int(along[code][of].max())
            for code, count in per_block.items()
        }
        cycles = float((lives.blocks.end[of] - lives.blocks.begin[of]).sum())
        ns = float((lives.blocks.end_ns[of] - lives.blocks.begin_ns[of]).sum())
        rate = cycles / ns if ns else 0.0
        known = {region: count for region, count in counts.items() if count}
        out.append(PathExecutions(launch.number, launch.kernel, float(launch.duration_ns), rate, known))
    return out


def _per_track(lives: Lifetimes, code: int) -> np.ndarray:
    rows = lives.is_span & (lives.region == code)
    return np.bincount(lives.of_row[rows], minlength=len(lives)).astype(np.int64)
