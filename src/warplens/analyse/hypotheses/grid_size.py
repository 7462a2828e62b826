"""Are there too few blocks to give every SM one?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, Finding
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.waves import WAVES, grid_evidence
from warplens.wording import percent, plural

CAUSE = "too few blocks"
_LEAST_UNUSED = 0.05
_FULL_WARPS = 16
_REACHABLE = 0.9
"""Of the listed peak of the memory."""


def _judge(e: Evidence) -> Finding:
    grid = e.of(WAVES)
    if grid.unused < _LEAST_UNUSED:
        return e.refuted(
            CAUSE, f"{grid.blocks:,} blocks ran on {round(grid.sms * (1 - grid.unused))} of {grid.sms} SMs"
        )
    used = round(grid.sms * (1 - grid.unused))
    # More blocks also put more warps on each SM, which hides latency as long as there are few.
    most = 1 - (1 - grid.unused) * max(0.25, min(1.0, e.warps.per_sm / _FULL_WARPS))
    return e.supported(
        CAUSE,
        f"The grid is too small for the device: {plural(grid.blocks, 'block')} keep {used} of {grid.sms} SMs busy, the "
        f"others are idle ({percent(grid.unused)} of all SM time).",
        "Split the work into more, smaller blocks (smaller tiles, split-K, more rows in parallel), so that every SM "
        "gets at least one.",
        # What the kernel moves must still be moved, however many SMs ask for it.
        e.gain(min(grid.unused, max(1 - e.memory_at_least / _REACHABLE, 0.0)), most, roof=most),
        HIGH,
        evidence=grid_evidence(grid),
        refuted_by="A grid of twice as many blocks of half the work that takes as long.",
    )


GRID_SIZE = Hypothesis(
    CAUSE,
    _judge,
    explains=frozenset({"last wave", "low occupancy", "too little in flight", "block turnover", "cache misses"}),
    needs_headroom=False,
    about_grid=True,
)
