"""Diagnose a kernel: what bounds it, its occupancy, stalls and roofline position, and the findings about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from warplens.analyse.analysis import Answers
from warplens.analyse.evidence import Evidence
from warplens.analyse.findings import Findings, findings_from
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.lifetimes import Lifetimes
from warplens.analyse.occupancy import OCCUPANCY, Achieved
from warplens.analyse.roofline import Roofline, device_of, kernel_of
from warplens.errors import WarplensError
from warplens.trace.model import Trace
from warplens.wording import digits, duration, percent

_LATE_FACTOR = 2.0


@dataclass(frozen=True)
class Diagnosis:
    """`bound` is memory, compute, neither or unknown, `why` the evidence. `stalls` are shares of warp time by waiting
    region, or the stall groups of Nsight Compute where given (`stalls_from`). `moves` says how to raise the point.
    `late` says that the kernel takes far longer than expected. `findings` are those about this kernel variant."""

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
    late: str
    findings: Findings

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
            "late": self.late,
            **self.findings.to_json(),
        }


def diagnose(
    trace: Trace, *, kernel: str | None = None, given: KnownFacts | None = None, waits_like: str | None = None
) -> Diagnosis:
    """Diagnose one kernel of a trace; `given` is what else is known about it."""
    extra = given or KnownFacts()
    if not trace.of_kind("span").any():
        raise WarplensError("the trace holds no spans, so there is nothing to diagnose")
    name = kernel_of(Lifetimes.of(trace), kernel)
    answers = Answers(trace, waits_like)
    evidence = Evidence(answers, name, extra)
    bound, why = _bound(evidence)
    ncu = evidence.ncu
    stalls, source = (dict(ncu.groups), "ncu") if ncu and ncu.stalls else (evidence.waiting, "trace")
    return Diagnosis(
        kernel=name,
        device=device_of(trace),
        time_ns=evidence.kernel_ns,
        bound=bound,
        why=why,
        point=evidence.point,
        moves=_moves(evidence.point),
        occupancy=evidence.of(OCCUPANCY),
        stalls=stalls,
        stalls_from=source,
        late=_late(evidence.kernel_ns, extra.expected_ns),
        findings=findings_from(answers, extra).of(name),
    )


def _late(time_ns: float, expected_ns: float | None) -> str:
    if not expected_ns or time_ns < _LATE_FACTOR * expected_ns:
        return ""
    return f"takes {duration(time_ns)}, {time_ns / expected_ns:.1f} times the expected {duration(expected_ns)}"


def _bound(evidence: Evidence) -> tuple[str, str]:
    """What bounds the kernel, with both rates."""
    bound, given, point, ncu = evidence.roof[0], evidence.given, evidence.point, evidence.ncu
    device = device_of(evidence.trace)
    if ncu is not None and ncu.compute is not None and ncu.memory is not None:
        shares = f"memory {percent(ncu.memory)}, compute {percent(ncu.compute)} of their peaks"
        return bound, f"Nsight Compute: {shares}."
    if point is None and (given.flops or given.bytes):
        return "unknown", f"no peaks are listed for {device or 'the device'}: measure them and pass --ceilings."
    if point is None:
        return "unknown", "pass --flops and --bytes, or an Nsight Compute report with --ncu."
    roof = point.ceilings
    parts = []
    if point.bandwidth is not None:
        parts.append(f"memory {digits(point.bandwidth)} GB/s ({percent(point.bandwidth / roof.bandwidth)} of peak)")
    if point.tflops is not None:
        parts.append(
            f"compute {digits(point.tflops)} TFLOP/s {roof.dtype} ({percent(point.tflops / roof.tflops)} of peak)"
        )
    return bound, ", ".join(parts) + "."


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
