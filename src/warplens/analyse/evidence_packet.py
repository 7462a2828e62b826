"""The evidence packet: everything a reader needs to act on a trace, as one document within a budget.

Its schema is described in docs/agents.md; PACKET_SCHEMA changes when a key changes its meaning or goes away.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

from warplens.analyse.findings import Findings
from warplens.analyse.kernel_variants import KernelVariant, kernel_variants
from warplens.analyse.sample_share import sample_line, sample_share
from warplens.analyse.slowdown import slowdown_of
from warplens.analyse.trace_quality import clock_line, time_line, warnings_of
from warplens.errors import UsageError
from warplens.trace.model import Trace

PACKET_SCHEMA = 1
LEAST_BUDGET = 800
CHARACTERS_PER_TOKEN = 3
"""JSON with numbers in it takes about a token per three characters; text takes fewer tokens."""
UNITS = {
    "gain": "share of the kernel's time that is saved if the cause is removed, from low to high",
    "gain_ns": "the same in ns per launch",
    "time_ns": "ns per launch: median, least and most of the recorded launches",
    "covered": "share of warp time inside regions",
    "slowdown": "time with marks by time without",
    "kernel_share": "share of the trace's kernel time",
}
_PLACES = 8

Document = dict[str, Any]


def tokens(document: Any) -> int:
    """How many tokens a document takes at most, as JSON."""
    return -(-len(json.dumps(document, ensure_ascii=False, separators=(",", ":"), default=str)) // CHARACTERS_PER_TOKEN)


def evidence_packet(trace: Trace, found: Findings, *, file: str = "", budget: int | None = None) -> Document:
    """Environment, kernel variants, cost, findings with their evidence, and what was not measured.

    With a budget in tokens, the least important parts are left out, and `left_out` says which.
    """
    if budget is not None and budget < LEAST_BUDGET:
        raise UsageError(f"budget={budget}: a packet takes at least {LEAST_BUDGET} tokens")
    variants = kernel_variants(trace.meta.launches)
    packet: Document = {
        "schema": PACKET_SCHEMA,
        "file": file,
        "units": dict(UNITS),
        "environment": _environment(trace),
        "kernels": [_kernel(one) for one in variants],
        "findings": [_short(one.to_json()) for one in found.supported],
        "undecided": [_open(one.to_json()) for one in found.undecided],
        "not_measured": _not_measured(trace, variants, found),
        "left_out": {},
    }
    for shorten in _SHORTER if budget is not None else ():
        if tokens(packet) <= (budget or 0):
            break
        shorten(packet, budget or 0)
    return packet


def _environment(trace: Trace) -> Document:
    devices = [
        {name: one[name] for name in ("name", "sm_count", "capability", "driver") if one.get(name)}
        for one in trace.meta.distinct_devices
    ]
    return {"devices": devices, "producer": trace.meta.producer, "clock": time_line(trace) or clock_line(trace)}


def launch_facts(variant: KernelVariant) -> Document:
    """How often a variant ran, how long a launch took, and what marks cost."""
    times = [info.end_ns - info.begin_ns for info in variant.launches]
    slowdown = slowdown_of(variant.launches)
    return {
        "launches_recorded": len(times),
        "launches_made": variant.ran or len(times),
        "time_ns": {"median": median(times), "least": min(times), "most": max(times)},
        "slowdown": slowdown.to_json() if slowdown else None,
    }


def _kernel(variant: KernelVariant) -> Document:
    infos = variant.launches
    covered = [float(info.covered["median"]) for info in infos if "median" in info.covered]
    resources = {name: infos[0].extra[name] for name in ("registers", "spilled_bytes") if name in infos[0].extra}
    return {
        "kernel": variant.label,
        "grid": list(infos[0].grid),
        "block": list(infos[0].block),
        **launch_facts(variant),
        "covered": median(covered) if covered else None,
        "sample": sample_share(infos),
        **resources,
    }


def _not_measured(trace: Trace, variants: Sequence[KernelVariant], found: Findings) -> list[str]:
    """What the trace cannot say, in sentences."""
    lines = [*warnings_of(trace)]
    if sample := sample_line(trace.meta.launches):
        lines.append(sample)
    unknown = [one.label for one in variants if (known := slowdown_of(one.launches)) is None or not known.measured]
    if unknown:
        lines.append(
            f"what profiling costs is not measured for {', '.join(unknown[:3])}; use `warplens run --launches N`"
        )
    if any(len(one.launches) == 1 for one in variants):
        lines.append("a variant with one recorded launch has no spread between launches")
    lines += [f"{one.kernel}: {one.kind} is within the error: {one.withheld}" for one in found.withheld]
    return lines


def _short(finding: Document) -> Document:
    """A finding whose lists of places are cut to a few examples."""
    for name in ("sms", "warps", "blocks"):
        places = finding.pop(name)
        if places:
            finding[name] = places[:_PLACES] + ([f"and {len(places) - _PLACES} more"] if len(places) > _PLACES else [])
    finding["consequences"] = [_short(one) for one in finding["consequences"]]
    return {name: value for name, value in finding.items() if value not in ("", [], None)}


def _open(finding: Document) -> Document:
    return {name: finding[name] for name in ("kind", "kernel", "what", "advice") if finding[name]}


def _count(packet: Document, name: str, dropped: int) -> None:
    if dropped:
        packet["left_out"][name] = packet["left_out"].get(name, 0) + dropped


def _few(name: str, keep: int) -> Callable[[Document, int], None]:
    """Keep the first few entries of a list, as many as the budget allows but at least `keep`."""

    def shorten(packet: Document, budget: int) -> None:
        entries = packet[name]
        while len(packet[name]) > keep and tokens(packet) > budget:
            packet[name] = packet[name][:-1]
        _count(packet, name, len(entries) - len(packet[name]))

    return shorten


def _without(name: str, first: int) -> Callable[[Document, int], None]:
    """Leave a part out of all findings but the first ones."""

    def shorten(packet: Document, budget: int) -> None:
        for finding in packet["findings"][first:]:
            if finding.pop(name, None):
                _count(packet, f"{name} of findings", 1)

    return shorten


_SHORTER: tuple[Callable[[Document, int], None], ...] = (
    _without("consequences", 1),
    _few("undecided", 3),
    _few("kernels", 8),
    _without("evidence", 3),
    _few("findings", 3),
    _few("not_measured", 4),
    _without("refuted_by", 1),
    _few("kernels", 2),
    _few("undecided", 0),
    _without("evidence", 1),
    _without("consequences", 0),
    _few("findings", 1),
    _few("not_measured", 1),
    _without("evidence", 0),
    _few("kernels", 1),
)
"""What is left out first comes first."""
