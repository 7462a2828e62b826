"""The slopes that delays measured, next to the critical path that the trace itself estimates."""

from __future__ import annotations

from dataclasses import dataclass

from warplens.analyse.analysis import Analysis, AnswerTable, region_table
from warplens.analyse.per_kernel import PerKernel
from warplens.analyse.region_sensitivity import RegionSensitivity, Sensitivity
from warplens.trace.model import Trace
from warplens.wording import percent


@dataclass(frozen=True)
class MeasuredSlopes:
    """The regions of one kernel; empty where no experiment was made."""

    regions: tuple[RegionSensitivity, ...]


def measured_slopes(trace: Trace) -> PerKernel[MeasuredSlopes]:
    """What an experiment with delays found about each kernel of a trace (`warplens sensitivity -o`)."""
    found = Sensitivity.from_json(trace.meta.sensitivity).regions
    by_kernel = {kernel: tuple(one for one in found if one.kernel == kernel) for kernel in trace.kernels}
    return PerKernel({kernel: MeasuredSlopes(some) for kernel, some in by_kernel.items() if some})


def slopes_of(trace: Trace) -> dict[tuple[str, str], RegionSensitivity]:
    """By kernel and region: of several variants, the one with most launches."""
    ordered = sorted(Sensitivity.from_json(trace.meta.sensitivity).regions, key=lambda one: one.launches)
    return {(one.kernel, one.region): one for one in ordered}


def slope_text(one: RegionSensitivity | None) -> str:
    """A slope with its interval, or why there is none."""
    if one is None:
        return ""
    if one.slope is None or one.low is None or one.high is None:
        return "not measured"
    return f"{one.slope:.2f} ({one.low:.2f} to {one.high:.2f}) {one.verdict}"


def _table(kernel: str, one: MeasuredSlopes) -> AnswerTable:
    return region_table(
        f"{kernel}: how much of a cycle in each region reaches the end, measured with delays",
        one.regions,
        ("slope", slope_text),
        ("path share", lambda row: "" if row.path_share is None else percent(row.path_share)),
        ("hidden up to", lambda row: f"{row.hidden_up_to:,.0f} cycles" if row.hidden_up_to else ""),
        ("executions", lambda row: f"{row.executions:,.0f}"),
        ("spread", lambda row: percent(row.base_spread)),
    )


_WITHOUT = "the trace has no experiment with delays; `warplens sensitivity -o FILE` makes one (docs/sensitivity.md)"

SENSITIVITY = Analysis("sensitivity", run=lambda ask: measured_slopes(ask.trace), table=_table, without=_WITHOUT)
