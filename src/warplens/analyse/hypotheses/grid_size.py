"""Are there too few blocks to give every SM one?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import HIGH, Finding
from warplens.analyse.hypotheses.exposed_latency import needed_bytes
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.load_waits import most_in_flight
from warplens.analyse.waves import WAVES, grid_evidence
from warplens.wording import percent, plural

CAUSE = "too few blocks"
_LEAST_UNUSED = 0.05
_MOST_WARPS = 32
"""Of an SM: eight per scheduler hide nearly all latencies."""
_REACHABLE = 0.9
"""Of the listed peak of the memory."""


def _judge(e: Evidence) -> Finding:
    grid = e.of(WAVES)
    if grid.unused < _LEAST_UNUSED:
        return e.refuted(
            CAUSE, f"{grid.blocks:,} blocks ran on {round(grid.sms * (1 - grid.unused))} of {grid.sms} SMs"
        )
    used = round(grid.sms * (1 - grid.unused))
    # More blocks also put more warps on each SM, which hides latency as long as there are few and the SM is not busy.
    busy = max(e.warps.per_sm / _MOST_WARPS, e.issued_at_least, e.shared_busy)
    most = 1 - (1 - grid.unused) * min(busy, 1.0)
    return e.supported(
        CAUSE,
        f"The grid is too small for the device: {plural(grid.blocks, 'block')} keep {used} of {grid.sms} SMs busy, the "
        f"others are idle ({percent(grid.unused)} of all SM time).",
        "Split the work into more, smaller blocks (smaller tiles, split-K, more rows in parallel), so that every SM "
        "gets at least one.",
        # What the kernel moves must still be moved, however many SMs ask for it.
        e.gain(0.0 if _may_fill_memory(e) else min(grid.unused, _room(e)), most, roof=most),
        HIGH,
        evidence=grid_evidence(grid),
        refuted_by="A grid of twice as many blocks of half the work that takes as long.",
    )


def _room(e: Evidence) -> float:
    return max(1 - e.memory_at_least / _REACHABLE, 0.0)


def _may_fill_memory(e: Evidence) -> bool:
    """Whether the SMs that have blocks may keep the memory busy on their own, and nothing says how much they move."""
    used = e.warps.sms / max(e.of(WAVES).sms, 1)
    return e.memory_reached is None and most_in_flight(e) * used >= needed_bytes(e)


GRID_SIZE = Hypothesis(
    CAUSE,
    _judge,
    explains=frozenset({"last wave", "low occupancy", "too little in flight", "block turnover", "cache misses"}),
    needs_headroom=False,
    about_grid=True,
)
