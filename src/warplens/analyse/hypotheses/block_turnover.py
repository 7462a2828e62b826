"""Do SMs idle between two blocks: one has ended, and the next has not started?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import Finding
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.ramp import RAMP
from warplens.analyse.waves import WAVES
from warplens.wording import duration, percent

CAUSE = "block turnover"
_LEAST = 0.05


def _judge(e: Evidence) -> Finding:
    grid, unmarked = e.of(WAVES), e.of(RAMP).unmarked
    # Blocks that run longer than their records fill a part of what looks idle.
    filled = (1 - grid.idle) * unmarked / max(1 - unmarked, _LEAST)
    if unmarked > grid.gaps or (grid.gaps >= _LEAST > grid.gaps - filled):
        return e.refuted(CAUSE, "blocks run longer than their first and last records show")
    if grid.gaps < _LEAST:
        return e.refuted(CAUSE, f"SMs were idle between two blocks for {percent(grid.gaps)} of the time")
    block = e.common["block_ns"]
    lasts = duration(block.value) if not isinstance(block, (int, float, str)) else ""
    return e.supported(
        CAUSE,
        f"SMs were idle between two blocks for {percent(grid.gaps)} of the time: one had ended and the next had not "
        f"started. A block lasts {lasts}.",
        "Give each block more work, make the kernel persistent, or let two blocks fit on an SM so that one starts "
        "while the other ends.",
        e.gain(grid.gaps - filled, grid.gaps, roof=grid.gaps),
        evidence={"gaps": grid.gaps, "blocks_per_sm": grid.slots},
        refuted_by="Half as many blocks of twice the work that take as long.",
    )


BLOCK_TURNOVER = Hypothesis(CAUSE, _judge, about_grid=True)
