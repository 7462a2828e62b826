"""Every hypothesis, listed once: `warplens findings`, `diagnose`, `stats --findings`, reports and tests read this."""

from __future__ import annotations

from warplens.analyse.hypotheses.atomics_contention import ATOMICS_CONTENTION
from warplens.analyse.hypotheses.bank_conflicts import BANK_CONFLICTS
from warplens.analyse.hypotheses.barrier_waits import BARRIER_WAITS
from warplens.analyse.hypotheses.block_balance import BLOCK_BALANCE
from warplens.analyse.hypotheses.block_turnover import BLOCK_TURNOVER
from warplens.analyse.hypotheses.cache_misses import CACHE_MISSES
from warplens.analyse.hypotheses.clock_drop import CLOCK_DROP
from warplens.analyse.hypotheses.exposed_latency import EXPOSED_LATENCY
from warplens.analyse.hypotheses.grid_size import GRID_SIZE
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.hypotheses.last_wave import LAST_WAVE
from warplens.analyse.hypotheses.late_rank import LATE_RANK
from warplens.analyse.hypotheses.launch_ramp import LAUNCH_RAMP
from warplens.analyse.hypotheses.numerical_problem import NUMERICAL_PROBLEM
from warplens.analyse.hypotheses.occupancy_limit import OCCUPANCY_LIMIT
from warplens.analyse.hypotheses.pipeline_sides import SLOW_CONSUMER, SLOW_PRODUCER
from warplens.analyse.hypotheses.register_spills import REGISTER_SPILLS
from warplens.analyse.hypotheses.serialised_section import SERIALISED_SECTION
from warplens.analyse.hypotheses.uncoalesced_access import UNCOALESCED_ACCESS
from warplens.analyse.hypotheses.unmarked_time import UNMARKED_TIME
from warplens.analyse.hypotheses.waits_inside import WAITS_INSIDE
from warplens.analyse.hypotheses.warp_balance import WARP_BALANCE

HYPOTHESES: dict[str, Hypothesis] = {
    one.cause: one
    for one in (
        NUMERICAL_PROBLEM,
        SERIALISED_SECTION,
        LAUNCH_RAMP,
        GRID_SIZE,
        LAST_WAVE,
        BLOCK_BALANCE,
        BLOCK_TURNOVER,
        WARP_BALANCE,
        BARRIER_WAITS,
        SLOW_PRODUCER,
        SLOW_CONSUMER,
        UNCOALESCED_ACCESS,
        BANK_CONFLICTS,
        ATOMICS_CONTENTION,
        REGISTER_SPILLS,
        OCCUPANCY_LIMIT,
        EXPOSED_LATENCY,
        CACHE_MISSES,
        CLOCK_DROP,
        WAITS_INSIDE,
        UNMARKED_TIME,
        LATE_RANK,
    )
}
