"""Did the SM clock drop while the kernel ran?"""

from __future__ import annotations

from warplens.analyse.evidence import Evidence
from warplens.analyse.finding import MEDIUM, Finding, Gain
from warplens.analyse.hypotheses.hypothesis import Hypothesis
from warplens.analyse.sm_clock import SM_CLOCK

CAUSE = "clock drop"
_LEAST = 0.03
_SHORTEST_NS = 100_000


def _judge(e: Evidence) -> Finding:
    one = e.of(SM_CLOCK)
    if not one.plausible:
        return e.undecided(
            CAUSE,
            f"The clock rates of this trace ({one.mhz_min:,.0f} to {one.mhz_max:,.0f} MHz) are not accurate enough to "
            f"compare: the device's limit is {one.limit_mhz:,.0f} MHz.",
            "Record a longer launch, or add anchors.",
        )
    if e.kernel_ns < _SHORTEST_NS:
        return e.refuted(CAUSE, "the kernel is too short for its clock to change much")
    if not one.dropped or one.lost < _LEAST:
        return e.refuted(CAUSE, f"the clock was {one.mhz_min:,.0f} to {one.mhz_max:,.0f} MHz")
    return e.supported(
        CAUSE,
        f"The SM clock dropped to {one.mhz_min:,.0f} MHz (mean {one.mhz_mean:,.0f}, highest {one.mhz_max:,.0f}, error "
        f"{one.mhz_error:,.0f}) while the kernel ran, as with a power or thermal limit.",
        "Compare in cycles rather than in ns; lock the clock (nvidia-smi -lgc) for measurements; fewer wasted "
        "operations and bytes leave more power for the clock.",
        Gain.between(0.0, one.lost),
        MEDIUM,
        evidence={
            "mhz_min": one.mhz_min,
            "mhz_mean": one.mhz_mean,
            "mhz_max": one.mhz_max,
            "mhz_error": one.mhz_error,
        },
        refuted_by="nvidia-smi shows no clock event reasons while the kernel runs.",
    )


CLOCK_DROP = Hypothesis(CAUSE, _judge)
