"""Four common problems of a kernel: low memory throughput, low occupancy, long duration, numerical problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from warplens.analyse.finding import Number
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.ncu import NcuKernel
from warplens.analyse.occupancy import Achieved
from warplens.analyse.region_purpose import Purpose, purposes
from warplens.analyse.roofline import Roofline
from warplens.analyse.waves import Waves
from warplens.trace.model import Trace
from warplens.wording import digits, duration, percent, plural

FOUND, CLEAR, UNKNOWN = "found", "clear", "unknown"
NAMES = ("low memory throughput", "low occupancy", "long duration", "numerical problem")

_LOW_BANDWIDTH = 0.4
"""Share of peak bandwidth below which it is low. From 60 % a kernel is memory bound; in between it needs tuning."""
_LOW_OCCUPANCY = 0.1
"""Share of an SM's warp slots: fewer than two warps per scheduler. Kernels on matrix units do well with 12 %."""
_NEAR_ROOF = 0.6
_MIN_USED = 0.25
"""Share of the loaded bytes that must be used; below it, most of the bandwidth is wasted."""
_SERIAL = 0.1
"""Share of the resident warps: if fewer work at a time and most wait, the work is serialised."""
_UNUSED = 0.5
_LATE_FACTOR = 2.0

_COALESCE = (
    "Let consecutive lanes read consecutive addresses, 16 bytes each, with several loads in flight; confirm with "
    "`warplens run --ncu`: sectors per load request (4 when lanes load adjacent 4-byte words, 32 when each lane "
    "touches a sector of its own)."
)


@dataclass(frozen=True)
class Issue:
    """One problem: `verdict` is found, clear, or unknown, in which case `what` says what is missing."""

    name: str
    verdict: str
    what: str
    advice: str = ""
    evidence: Mapping[str, Number] = field(default_factory=dict)


@dataclass(frozen=True)
class ResultCheck:
    """The comparison of a result with its reference: `problem` is empty where the result is correct."""

    problem: str = ""
    error: float | None = None
    tolerance: float | None = None


def memory_issue(
    point: Roofline | None,
    regions: Iterable[tuple[str, float]],
    ncu: NcuKernel | None,
    others: Iterable[Issue] = (),
    missing: Sequence[str] = (),
) -> Issue:
    """Bandwidth far below its peak in a kernel whose roof is memory.

    `regions` are names with shares, largest first. `others` are issues that would explain it, such as serialised work.
    `missing` says in words which inputs are needed to decide.
    """
    name = NAMES[0]
    coalesced, evidence = _coalescing(ncu)
    if point is None or point.bandwidth is None:
        if ncu is not None and ncu.load_efficiency is not None and ncu.load_efficiency < _MIN_USED:
            return Issue(name, FOUND, coalesced.strip(), _COALESCE, evidence)
        return Issue(name, UNKNOWN, f"needs {' and '.join(missing)}.")
    roof = point.ceilings
    share = point.bandwidth / roof.bandwidth
    evidence |= {"GB/s": point.bandwidth, "of_peak": share}
    reached = f"{digits(point.bandwidth)} of {digits(roof.bandwidth)} GB/s ({percent(share)})"
    if point.roof != "memory" and point.intensity is not None and point.intensity >= roof.ridge:
        where = f"{digits(point.intensity)} FLOP/byte is right of the ridge at {digits(roof.ridge)}"
        return Issue(name, CLEAR, f"memory is not the limit: {where}; {reached}.", evidence=evidence)
    if share >= _LOW_BANDWIDTH:
        return Issue(name, CLEAR, f"{reached}.", evidence=evidence)
    cause = next((issue for issue in others if issue.verdict == FOUND and issue.evidence.get("cause")), None)
    if cause is not None:
        return Issue(name, CLEAR, f"{reached}, which is explained by {cause.name}.", evidence=evidence)
    longest, longest_share = next(iter(regions), ("", 0.0))
    where = f"; most of the time goes to `{longest}` ({percent(longest_share)})" if longest else ""
    what = f"{reached}, although memory is the roof{where}.{coalesced}"
    return Issue(name, FOUND, what, _COALESCE, evidence | {"region": longest})


def _coalescing(ncu: NcuKernel | None) -> tuple[str, dict[str, Number]]:
    """What Nsight Compute measured of the access pattern, in words and as evidence."""
    parts: list[str] = []
    evidence: dict[str, Number] = {}
    if ncu is not None and ncu.sectors is not None:
        parts.append(f"{ncu.sectors:.1f} sectors of 32 bytes per load request")
        evidence["sectors_per_request"] = ncu.sectors
    if ncu is not None and ncu.load_efficiency is not None:
        parts.append(f"{percent(ncu.load_efficiency)} of the loaded bytes used")
        evidence["load_efficiency"] = ncu.load_efficiency
    return (f" Nsight Compute: {', '.join(parts)}." if parts else ""), evidence


def occupancy_issue(achieved: Achieved | None, point: Roofline | None) -> Issue:
    """Too few warps to hide latency, in a kernel that is not already at its roof."""
    name = NAMES[1]
    if achieved is None or achieved.share is None:
        return Issue(name, UNKNOWN, "the number of warp slots per SM of this device is unknown.")
    limit = achieved.theoretical
    evidence: dict[str, Number] = {"achieved": achieved.share, "warps_per_sm": achieved.warps}
    could, lift = "", "Launch more blocks, or let each need fewer registers and less shared memory."
    if limit is not None:
        limiters = " and ".join(limit.limiters)
        evidence |= {"theoretical": limit.share, "limiter": limiters}
        could = f"; {percent(limit.share)} are possible, limited by {limiters}"
        lift = f"Make room for more: {limit.lift}."
        if achieved.share < 0.5 * limit.share:
            lift = "The grid does not fill the available slots: launch more blocks, or balance them."
    what = f"{percent(achieved.share)} of the warp slots were in use, {achieved.warps:.1f} warps per SM{could}"
    if achieved.share >= _LOW_OCCUPANCY:
        return Issue(name, CLEAR, f"{what}.", evidence=evidence)
    if point is not None and point.of_roof >= _NEAR_ROOF:
        near = f"low, but sufficient: the kernel is at {percent(point.of_roof)} of its roof"
        return Issue(name, CLEAR, f"{what}; {near}.", evidence=evidence)
    return Issue(name, FOUND, f"{what}: too few to hide latency.", lift, evidence | {"cause": "few warps"})


@dataclass(frozen=True)
class Parallelism:
    """Resident warps and working (not waiting) warps, averaged over a kernel's launches."""

    resident: float
    working: float

    @property
    def waiting(self) -> float:
        return 1 - self.working / self.resident if self.resident else 0.0


def parallelism(trace: Trace, kernel: str, waits_like: str | None = None) -> Parallelism:
    """Measure how many warps were resident at a time, and how many of them worked."""
    lives = Lifetimes.of(trace)
    mine = lives.tracks_of(kernel)
    waiting = np.array([kind is Purpose.WAIT for kind in purposes(lives.regions, waits_like)], bool)
    lived = (lives.finish - lives.begin).astype(np.float64)
    waited = lives.sum_per_track(lives.own * waiting[lives.region])
    alive_ns = (lives.finish_ns - lives.begin_ns).astype(np.float64)
    total = float(sum(lives.launches[at].duration_ns for at in lives.kernels[kernel])) or 1.0
    working = alive_ns * (1 - np.divide(waited, lived, out=np.zeros_like(lived), where=lived > 0))
    # Blocks that were not recorded held warps too, in proportion to their lifetimes.
    ours = np.isin(lives.blocks.launch, lives.kernels[kernel])
    recorded = float((lives.blocks.end_ns - lives.blocks.begin_ns)[ours].sum())
    whole = [lives.all_blocks_of(int(at)) for at in lives.kernels[kernel]]
    scale = sum(float((part.end - part.begin).sum()) for part in whole) / recorded if recorded else 1.0
    return Parallelism(scale * float(alive_ns[mine].sum()) / total, scale * float(working[mine].sum()) / total)


def duration_issue(
    time_ns: float, expected_ns: float | None, work: Parallelism, grid: Waves, wait: str, device: str
) -> Issue:
    """Longer than it should be: serialised blocks, SMs without work, or more than the expected time."""
    name = NAMES[2]
    evidence: dict[str, Number] = {
        "time_ns": time_ns,
        "device": device,
        "resident_warps": work.resident,
        "working_warps": work.working,
        "waiting": work.waiting,
        "unused_sms": grid.unused,
    }
    took = f"{duration(time_ns)} on {device}"
    late = ""
    if expected_ns:
        evidence["expected_ns"] = expected_ns
        took += f", {duration(expected_ns)} expected"
        late = f"{took}: {time_ns / expected_ns:.1f} times as long" if time_ns > _LATE_FACTOR * expected_ns else ""
    if work.waiting > 0.5 and work.working < _SERIAL * work.resident:
        at = f" at `{wait}`" if wait else ""
        return Issue(
            name,
            FOUND,
            f"{took}; the work is serialised: of {work.resident:,.0f} resident warps only {work.working:,.1f} work at "
            f"a time, the others wait{at} ({percent(work.waiting)} of warp time).",
            "Remove the ordering between blocks: a lock, a ticket, or a chain of flags. Where order matters, let "
            "blocks work first and serialise only the writes, or use atomics.",
            evidence | {"region": wait, "cause": "serialised"},
        )
    if grid.unused > _UNUSED:
        used = round((1 - grid.unused) * grid.sms)
        return Issue(
            name,
            FOUND,
            f"{took}; {plural(grid.blocks, 'block')} keep {used} of {grid.sms} SMs busy, the others are idle.",
            "Split the work into more blocks, over keys too where there are few queries, so that every SM gets one.",
            evidence | {"cause": "idle SMs"},
        )
    if late:
        advice = "Check that the GPU and the sizes are the intended ones, and see `warplens stats --findings`."
        return Issue(name, FOUND, f"{late}; the trace shows no serialisation.", advice, evidence)
    busy = f"{work.working:,.0f} of {work.resident:,.0f} resident warps work at a time"
    unasked = "" if expected_ns else " To judge the duration, pass --expected."
    return Issue(name, CLEAR, f"{took}; {busy}, on {percent(1 - grid.unused)} of the SMs.{unasked}", evidence=evidence)


def numerical_issue(trace: Trace, kernel: str, checked: ResultCheck | None) -> Issue:
    """NaN or Inf in the result or in a recorded value, or a result too far from the reference."""
    name = NAMES[3]
    rows = trace.of_kind("value") & (np.asarray(trace.column("kernel").to_numpy(zero_copy_only=False)) == kernel)
    values = trace.numpy("value")[rows]
    bad = ~np.isfinite(values)
    evidence: dict[str, Number] = {"values": len(values), "not_finite": int(bad.sum())}
    parts = []
    if checked is not None and checked.problem:
        parts.append(checked.problem)
    if bad.any():
        at = np.flatnonzero(rows)[bad][0]
        region = str(trace.column("region")[int(at)].as_py())
        block, warp = (int(trace.numpy(column)[at]) for column in ("block", "warp"))
        count = f"{int(bad.sum()):,} of {plural(len(values), 'recorded value')} are NaN or Inf"
        parts.append(f"{count}, first `{region}` in block {block}, warp {warp}")
        evidence |= {"region": region, "block": block, "warp": warp}
    if checked is not None and checked.error is not None:
        evidence["error"] = checked.error
    if parts:
        advice = "Subtract the row's maximum before exp, guard divisions by sums that can be 0, and sum in fp32."
        return Issue(name, FOUND, f"{'; '.join(parts)}.", advice, evidence)
    if checked is not None:
        far = "" if checked.error is None else f", relative error {checked.error:.1g}"
        allowed = "" if checked.tolerance is None else f" (allowed {checked.tolerance:.1g})"
        return Issue(name, CLEAR, f"the result is finite and correct{far}{allowed}.", evidence=evidence)
    if len(values):
        return Issue(name, CLEAR, f"all {plural(len(values), 'recorded value')} are finite.", evidence=evidence)
    return Issue(
        name,
        UNKNOWN,
        "a trace has no results: diagnose the benchmark, whose case has a reference, or record values with "
        'WL_VALUE("sum", x) or wlt.value("sum", x).',
        evidence=evidence,
    )
