"""The share of a kernel's time that profiling took."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from warplens.analyse.lifetimes import Lifetimes
from warplens.record.cost_keys import ALONE_CYCLES, RECORD_CYCLES, SLOWDOWN, SLOWDOWN_MEASURED
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo


def profiling_cost(trace: Trace, name: str, launches: Sequence[LaunchInfo] = ()) -> float | None:
    """The share of the time of a kernel, or of one of its variants, that profiling took; None where it is not known.

    `launches` are those of one variant; by default, those that `name` stands for. The largest share counts.

    It comes from the kernel's time with and without marks (`slowdown_measured` of its launches, `slowdown` in the
    trace's cost), from an estimate (`slowdown` of its launches), or from the calibrated cost of a record, counting two
    records per span.
    """
    lives = Lifetimes.of(trace)
    infos = list(launches) or [info for at in lives.launches_of(name) if (info := lives.launches[at].info)]

    def spans() -> int:
        wanted = {(info.rank, info.launch) for info in infos}
        numbers = [at for at, one in enumerate(lives.launches) if (one.rank, one.number) in wanted]
        return int(lives.cells.count[np.isin(lives.launch, numbers)[lives.cells.track]].sum())

    return cost_of_launches(infos, trace.meta.cost, spans)


def cost_of_launches(infos: Sequence[LaunchInfo], common: Mapping[str, Any], spans: Callable[[], int]) -> float | None:
    """The same of given launches; `common` is the cost that the trace states, and `spans` counts those of the
    launches."""
    costs = [*(info.cost for info in infos), common]
    keys = (SLOWDOWN_MEASURED, SLOWDOWN)
    measured = next((found for key in keys if (found := [float(cost[key]) for cost in costs if key in cost])), None)
    if measured:
        return max(1 - 1 / max(*measured, 1.0), 0.0)
    known = [info for info in infos if RECORD_CYCLES in info.cost]
    lived = sum(info.busy_cycles for info in known)
    if not lived or len(known) < len(infos):
        return None
    cost = known[0].cost
    return min(2 * spans() * float(cost.get(ALONE_CYCLES, cost[RECORD_CYCLES])) / lived, 1.0)
