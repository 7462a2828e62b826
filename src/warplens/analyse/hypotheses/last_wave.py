"""Do SMs idle at the end because the blocks do not divide evenly among them?"""

from __future__ import annotations

import math

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, LOW, MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.waves import WAVES, grid_evidence
from warplens.wording import percent

CAUSE = "last wave"
_LEAST = 0.05


def _judge(e: Evidence) -> Finding:
    grid = e.of(WAVES)
    if grid.quantised < _LEAST or grid.blocks < grid.sms:
        return e.refuted(
            CAUSE, f"the number of blocks left {percent(grid.quantised)} of SM time idle ({grid.waves:.2f} waves)"
        )
    per_wave = grid.sms * grid.slots
    model = 1 - grid.waves / math.ceil(grid.waves)
    return e.supported(
        CAUSE,
        f"The last wave is partial: {grid.blocks:,} blocks are {grid.waves:.2f} waves of {grid.slots} per SM on "
        f"{grid.sms} SMs, and {percent(grid.tail)} of all SM time was idle at the end.",
        f"Choose a grid that is a multiple of {per_wave:,} blocks, or make the kernel persistent so that SMs share the "
        "last tiles (stream-K, split-K).",
        # With one block per SM, an idle SM is lost; with more, those that are left run faster meanwhile.
        Gain.between((0.6 if grid.slots == 1 else 0.3) * grid.quantised, max(1.15 * grid.quantised, 0.8 * model)),
        HIGH if grid.slots == 1 else MEDIUM if grid.quantised > 0.5 * model else LOW,
        evidence=grid_evidence(grid),
        refuted_by=f"A grid of {math.ceil(grid.waves) * per_wave:,} equal blocks that takes longer.",
    )


LAST_WAVE = Hypothesis(CAUSE, _judge, about_grid=True)
