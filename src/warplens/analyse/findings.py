"""All analyses of a trace as one ranked list of statements."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from warplens.analyse.clock import clock, clock_findings, placement_error, too_small
from warplens.analyse.critical import CriticalPath, critical_path, path_findings
from warplens.analyse.finding import Finding
from warplens.analyse.imbalance import imbalance, imbalance_findings
from warplens.analyse.lives import Lives
from warplens.analyse.modes import mode_findings, modes
from warplens.analyse.names import purposes
from warplens.analyse.occupancy import achieved, occupancy_findings
from warplens.analyse.overlap import overlap, overlap_findings
from warplens.analyse.producers import match_waits
from warplens.analyse.ramp import ramp, ramp_findings
from warplens.analyse.result import PerKernel
from warplens.analyse.time_shift import ALONE_CYCLES, MEASURED, RECORD_CYCLES, SLOWDOWN
from warplens.analyse.waits import wait_findings, waits
from warplens.analyse.waves import wave_findings, waves
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE

_LEAST = 0.005


@dataclass(frozen=True)
class _Speedups:
    """What-if answers by name; a region that is on no path gives nothing."""

    paths: PerKernel[CriticalPath]

    def __call__(self, kernel: str, region: str, faster: float) -> float:
        found = [one for one in self.paths[kernel].regions if one.region == region]
        if not found:
            return 0.0
        # A wait cannot be made faster by itself: its part of the path is what its cause would give.
        return found[0].share * faster if found[0].purpose == "wait" else found[0].at(faster)


def findings(trace: Trace, *, waits_like: str | None = None, extra: Iterable[Finding] = ()) -> tuple[Finding, ...]:
    """Ranked statements about every kernel, the largest gain first; the withheld ones last, with the reason.

    `waits_like` is an expression for regions that only wait, besides those whose name says so. `extra` are findings
    from elsewhere (Nsight Compute, occupancy) to rank with the rest.
    """
    if not trace.of_kind("span").any():
        return tuple(extra)
    lives = Lives.of(trace)
    matches = match_waits(lives, purposes(lives.regions, waits_like))
    grid = waves(trace)
    together = overlap(trace, waits=waits_like)
    paths = critical_path(trace, waits=waits_like, matches=matches)
    found = [
        *imbalance_findings(
            imbalance(trace, waits=waits_like), quantised={name: grid[name].quantised for name in grid}
        ),
        *wave_findings(grid),
        *overlap_findings(together),
        *wait_findings(waits(trace, waits=waits_like, matches=matches), together),
        *path_findings(paths),
        *ramp_findings(ramp(trace, waits=waits_like)),
        *mode_findings(modes(trace), _Speedups(paths)),
        *clock_findings(clock(trace)),
        *occupancy_findings(achieved(trace)),
        *extra,
    ]
    return ranked(trace, found)


def ranked(trace: Trace, found: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings with their gain in ns, what is too small to be believed marked as withheld, in order."""
    lives = Lives.of(trace)
    total = sum(launch.duration_ns for launch in lives.launches) or 1
    error = placement_error(trace)
    cost = {kernel: own_cost(trace, kernel) for kernel in lives.kernels}
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
    kept = [finding for finding in out if finding.gain >= _LEAST or finding.gain == 0]
    return tuple(sorted(kept, key=lambda finding: (bool(finding.withheld), -finding.rank)))


def own_cost(trace: Trace, kernel: str) -> float | None:
    """The share of the kernel's time that profiling took, or None where nobody measured it.

    Either the whole kernel was timed with and without marks (`slowdown_measured` of its launches, `slowdown` in the
    trace's cost), or its slowdown was estimated (`slowdown` of its launches), or a calibration knows what a record
    costs where nothing hides it, and every span has two.
    """
    infos = [info for info in trace.meta.launches if info.kernel == kernel]
    costs = [*(info.cost for info in infos), trace.meta.cost]
    keys = (MEASURED, SLOWDOWN)
    measured = next((found for key in keys if (found := [float(cost[key]) for cost in costs if key in cost])), None)
    if measured:
        return max(1 - 1 / max(*measured, 1.0), 0.0)
    known = [info for info in infos if RECORD_CYCLES in info.cost]
    lived = sum(info.busy_cycles for info in known)
    if not lived or len(known) < len(infos):
        return None
    lives = Lives.of(trace)
    records = 2 * int(lives.is_span[lives.spread(lives.tracks_of(kernel))].sum())
    cost = known[0].cost
    return min(records * float(cost.get(ALONE_CYCLES, cost[RECORD_CYCLES])) / lived, 1.0)
