"""The findings of all analyses as one ranked list."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from warplens.analyse.analysis import Answers
from warplens.analyse.finding import Finding
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.registry import ANALYSES
from warplens.analyse.sample_share import WITHHELD
from warplens.analyse.sm_clock import placement_error, too_small
from warplens.record.capture import SAMPLED
from warplens.record.cost_keys import ALONE_CYCLES, RECORD_CYCLES, SLOWDOWN, SLOWDOWN_MEASURED
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE, LaunchInfo

_MIN_GAIN = 0.005


def findings(trace: Trace, *, waits_like: str | None = None, extra: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """Rank the findings about every kernel by gain, largest first; withheld ones come last, with the reason.

    `waits_like` is a regular expression for regions that only wait, in addition to those whose name says so. `extra`
    are findings from elsewhere, such as Nsight Compute, to rank with the others.
    """
    return findings_from(Answers(trace, waits_like), extra)


def findings_from(answers: Answers, extra: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """The findings of every analysis, from answers that may have been computed already."""
    if not answers.trace.of_kind("span").any():
        return tuple(extra)
    partial = _partly_recorded(answers.trace)
    found = [
        replace(finding, withheld=finding.withheld or WITHHELD)
        if one.needs_all_blocks and finding.kernel in partial
        else finding
        for one in ANALYSES.values()
        if not (one.needs_timeline and answers.trace.aggregated)
        for finding in one.findings(answers.of(one), answers)
    ]
    return ranked(answers.trace, [*found, *extra])


def _partly_recorded(trace: Trace) -> set[str]:
    """Kernels with a launch of which only some blocks were kept."""
    return {info.kernel for info in trace.meta.launches if SAMPLED in info.extra}


def ranked(trace: Trace, found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Sort findings, fill in their gain in ns, and mark those that are too small to be reliable as withheld."""
    lives = Lifetimes.of(trace)
    total = sum(launch.duration_ns for launch in lives.launches) or 1
    error = placement_error(trace)
    cost = {kernel: profiling_cost(trace, kernel) for kernel in lives.kernels}
    out = []
    for finding in found:
        if finding.region == LIFE:
            continue  # the life of a warp is no region that could be made faster
        ns = lives.kernel_ns(finding.kernel) if finding.kernel in lives.kernels else 0.0
        share = sum(lives.launches[at].duration_ns for at in lives.kernels.get(finding.kernel, ())) / total
        reason = finding.withheld
        if not reason and finding.gain > 0 and ns:
            reason = too_small(finding.gain, ns, error, cost.get(finding.kernel))
        out.append(replace(finding, gain_ns=finding.gain * ns, kernel_share=share or 1.0, withheld=reason))
    relevant = [finding for finding in out if finding.gain >= _MIN_GAIN or finding.gain == 0]
    return tuple(sorted(relevant, key=lambda finding: (bool(finding.withheld), -finding.rank)))


def profiling_cost(trace: Trace, kernel: str, launches: Sequence[LaunchInfo] = ()) -> float | None:
    """The share of the kernel's time that profiling took, or None where it was not measured.

    `launches` are those of one variant; by default, the variant with the largest share counts.

    It comes from the kernel's time with and without marks (`slowdown_measured` of its launches, `slowdown` in the
    trace's cost), from an estimate (`slowdown` of its launches), or from the calibrated cost of a record, counting two
    records per span.
    """
    infos = list(launches) or [info for info in trace.meta.launches if info.kernel == kernel]
    costs = [*(info.cost for info in infos), trace.meta.cost]
    keys = (SLOWDOWN_MEASURED, SLOWDOWN)
    measured = next((found for key in keys if (found := [float(cost[key]) for cost in costs if key in cost])), None)
    if measured:
        return max(1 - 1 / max(*measured, 1.0), 0.0)
    known = [info for info in infos if RECORD_CYCLES in info.cost]
    lived = sum(info.busy_cycles for info in known)
    if not lived or len(known) < len(infos):
        return None
    lives = Lifetimes.of(trace)
    wanted = {(info.rank, info.launch) for info in infos}
    numbers = [at for at, one in enumerate(lives.launches) if (one.rank, one.number) in wanted]
    records = 2 * int(lives.is_span[lives.spread(np.isin(lives.launch, numbers))].sum())
    cost = known[0].cost
    return min(records * float(cost.get(ALONE_CYCLES, cost[RECORD_CYCLES])) / lived, 1.0)
