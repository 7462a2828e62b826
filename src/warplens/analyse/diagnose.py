"""Diagnose a kernel: what bounds it, its occupancy, stalls and roofline position, and four common problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from warplens.analyse.devices import find_peak
from warplens.analyse.kernel_issues import (
    FOUND,
    Issue,
    ResultCheck,
    duration_issue,
    memory_issue,
    numerical_issue,
    occupancy_issue,
    parallelism,
)
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.ncu import NcuKernel
from warplens.analyse.occupancy import Achieved, achieved
from warplens.analyse.roofline import Roofline, device_of, kernel_of, roofline
from warplens.analyse.waits import waits
from warplens.analyse.waves import waves
from warplens.errors import WarplensError
from warplens.trace.model import Trace
from warplens.wording import digits, percent


@dataclass(frozen=True)
class KnownFacts:
    """What is known of a kernel beyond its trace: its work per launch and type, its time without marks and its expected
    time, the check of its result, ceilings measured on the device, and what Nsight Compute measured."""

    flops: float | None = None
    bytes: float | None = None
    dtype: str = "fp16"
    time_ns: float | None = None
    expected_ns: float | None = None
    checked: ResultCheck | None = None
    measured: Mapping[str, float] | None = None
    ncu: NcuKernel | None = None
    waits_like: str | None = None


@dataclass(frozen=True)
class Diagnosis:
    """`bound` is memory, compute, neither or unknown, `why` the evidence. `stalls` are shares of warp time by waiting
    region, or the stall groups of Nsight Compute where given (`stalls_from`). `moves` says how to raise the point."""

    kernel: str
    device: str
    time_ns: float
    bound: str
    why: str
    point: Roofline | None
    moves: str
    occupancy: Achieved | None
    stalls: Mapping[str, float]
    stalls_from: str
    issues: tuple[Issue, ...]
    given: KnownFacts = field(repr=False, default_factory=KnownFacts)

    @property
    def found(self) -> tuple[Issue, ...]:
        """The issues this kernel has."""
        return tuple(issue for issue in self.issues if issue.verdict == FOUND)

    def to_json(self) -> dict[str, Any]:
        one = self.occupancy
        limit = one.theoretical if one else None
        return {
            "kernel": self.kernel,
            "device": self.device,
            "time_ns": self.time_ns,
            "bound": self.bound,
            "why": self.why,
            "roofline": self.point.to_json() if self.point else None,
            "moves": self.moves,
            "occupancy": {
                "achieved": one.share if one else None,
                "warps": one.warps if one else None,
                "theoretical": limit.share if limit else None,
                "limiters": list(limit.limiters) if limit else [],
                "lift": limit.lift if limit else "",
            },
            "stalls": {"from": self.stalls_from, "shares": dict(self.stalls)},
            "issues": [asdict(issue) for issue in self.issues],
        }


def diagnose(trace: Trace, *, kernel: str | None = None, given: KnownFacts | None = None) -> Diagnosis:
    """Diagnose one kernel of a trace; `given` is what else is known about it."""
    extra = given or KnownFacts()
    if not trace.of_kind("span").any():
        raise WarplensError("the trace holds no spans, so there is nothing to diagnose")
    lives = Lifetimes.of(trace)
    name = kernel_of(lives, kernel)
    device = device_of(trace)
    time = extra.time_ns or lives.kernel_ns(name)
    point = None
    if (extra.flops or extra.bytes) and (extra.measured or find_peak(device)):
        point = roofline(
            trace,
            flops=extra.flops,
            bytes=extra.bytes,
            kernel=name,
            dtype=extra.dtype,
            time_ns=time,
            measured=extra.measured,
        )
    bound, why = _bound(point, extra, device)
    filled = achieved(trace).kernels.get(name)
    waiting = waits(trace, waits=extra.waits_like).kernels[name]
    own = {one.region: one.share for one in waiting.regions if one.share}
    stalls, source = (dict(extra.ncu.groups), "ncu") if extra.ncu and extra.ncu.stalls else (own, "trace")
    longest_wait = max(own, key=lambda region: own[region], default="")
    regions = sorted(
        ((row.region, row.exclusive_share) for row in trace.select(kernel=[name]).stats(merge_variants=True)),
        key=lambda pair: -pair[1],
    )
    late = duration_issue(
        time,
        extra.expected_ns,
        parallelism(trace, name, extra.waits_like),
        waves(trace).kernels[name],
        longest_wait,
        device or "an unknown device",
    )
    few = occupancy_issue(filled, point)
    missing = ["the bytes that it must move (--bytes)"] * (not extra.bytes)
    missing += ["the peak of its device's memory (--ceilings)"] * (not (extra.measured or find_peak(device)))
    slow = memory_issue(point, regions, extra.ncu, (late, few), missing)
    return Diagnosis(
        kernel=name,
        device=device,
        time_ns=time,
        bound=bound,
        why=why,
        point=point,
        moves=_moves(point),
        occupancy=filled,
        stalls=stalls,
        stalls_from=source,
        issues=(slow, few, late, numerical_issue(trace, name, extra.checked)),
        given=extra,
    )


def _bound(point: Roofline | None, given: KnownFacts, device: str) -> tuple[str, str]:
    """Prefer Nsight Compute, which counts what was really moved; declared work is what had to be moved."""
    ncu = given.ncu
    if ncu is not None and ncu.compute is not None and ncu.memory is not None:
        bound = "neither" if ncu.bound == "latency" else ncu.bound
        shares = f"memory {percent(ncu.memory)}, compute {percent(ncu.compute)} of their peaks"
        return bound, f"Nsight Compute: {shares}."
    if point is None and (given.flops or given.bytes):
        return "unknown", f"no peaks are listed for {device or 'the device'}: measure them and pass --ceilings."
    if point is None:
        return "unknown", "pass --flops and --bytes, or a Nsight Compute report with --ncu."
    roof = point.ceilings
    parts = []
    if point.bandwidth is not None:
        parts.append(f"memory {digits(point.bandwidth)} GB/s ({percent(point.bandwidth / roof.bandwidth)} of peak)")
    if point.tflops is not None:
        parts.append(
            f"compute {digits(point.tflops)} TFLOP/s {roof.dtype} ({percent(point.tflops / roof.tflops)} of peak)"
        )
    return point.bound, ", ".join(parts) + "."


def _moves(point: Roofline | None) -> str:
    """Where the point lies under the roof, and what would raise it."""
    if point is None:
        return ""
    roof = point.ceilings
    if point.of_roof > 1.02:
        return "Above the roof, which is impossible: check the bytes, the FLOPs, the type and the time."
    left = point.roof == "memory" if point.intensity is None else point.intensity < roof.ridge
    side = "left" if left else "right"
    where = f"{percent(point.of_roof)} of the roof, {side} of the ridge"
    if point.intensity is not None:
        where = (
            f"{percent(point.of_roof)} of the roof at {digits(point.intensity)} FLOP/byte ({side} of the ridge, "
            f"{digits(roof.ridge)})"
        )
    if point.bound == "memory":
        return f"{where}: on the memory roof. Only moving right helps: more reuse per byte, fusion, smaller types."
    if point.bound == "compute":
        return f"{where}: on the compute roof. Only a higher roof helps (smaller types), or fewer operations."
    if left:
        return (
            f"{where}: below the memory roof. Move up: coalesced 16-byte loads, more of them in flight, more warps; "
            "moving right (reuse) raises the roof as well."
        )
    return (
        f"{where}: below the compute roof. Move up: the matrix units, work that overlaps (copies ahead, softmax beside "
        "the products), fewer waits; bytes are not the problem."
    )
