"""Do SMs idle at the end because the blocks do not divide evenly among them?"""

from __future__ import annotations

import math

import numpy as np

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, Finding
from warplens.analyse.groups import reduce_by
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.waves import WAVES, grid_evidence
from warplens.wording import percent

CAUSE = "last wave"
_LEAST = 0.05
_MORE = 0.5
"""A block more, on most of them."""


def _judge(e: Evidence) -> Finding:
    grid = e.of(WAVES)
    if grid.quantised < _LEAST or grid.blocks < grid.sms:
        return e.refuted(
            CAUSE, f"the number of blocks left {percent(grid.quantised)} of SM time idle ({grid.waves:.2f} waves)"
        )
    step = grid.sms * (grid.slots if grid.waves > 1 else 1)
    model = 1 - grid.waves / math.ceil(grid.waves)
    per_sm = grid.blocks / grid.sms
    halved = 1 - math.ceil(2 * per_sm) / (2 * math.ceil(per_sm))
    waves = (
        f"The last wave is partial: {grid.blocks:,} blocks are {grid.waves:.2f} waves of {grid.slots} per SM on "
        f"{grid.sms} SMs"
        if grid.waves > 1
        else f"Blocks do not divide evenly among the SMs: {grid.blocks:,} on {grid.sms}, at most {grid.slots} on one"
    )
    return e.supported(
        CAUSE,
        f"{waves}, and {percent(grid.tail)} of all SM time was idle at the end.",
        f"Choose a grid that is a multiple of {step:,} blocks, or make the kernel persistent so that SMs share the "
        "last tiles (stream-K, split-K).",
        # Blocks of half the size leave another last wave; a persistent kernel leaves none. Where few warps are left on
        # an SM, it is not busy either.
        e.gain(min(halved, grid.quantised), grid.quantised, roof=1.15 * grid.quantised + grid.thin),
        HIGH if grid.slots == 1 else MEDIUM if grid.quantised > 0.5 * model or _more_blocks(e) else LOW,
        evidence=grid_evidence(grid),
        refuted_by=f"A grid of {math.ceil(grid.blocks / step) * step:,} equal blocks that takes longer.",
    )


def _more_blocks(e: Evidence) -> bool:
    """Whether the SMs that end last ran more blocks than the others: with uneven blocks they would have no more."""
    for at in e.launches:
        blocks = e.lives.all_blocks_of(at)
        sms, place = np.unique(blocks.sm, return_inverse=True)
        ran = np.bincount(place.reshape(-1))
        ends = reduce_by(np.maximum, blocks.end, place.reshape(-1), len(sms))
        last = ends > (float(np.median(ends)) + float(ends.max())) / 2
        if last.all() or not last.any() or ran[last].mean() < ran[~last].mean() + _MORE:
            return False
    return True


LAST_WAVE = Hypothesis(CAUSE, _judge, about_grid=True)
