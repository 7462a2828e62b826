"""A run summarised per kernel: launches, time, marks and their cost, and where the time went."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.profiling_cost import profiling_cost
from warplens.analyse.sample_share import sample_share
from warplens.analyse.slowdown import Slowdown, slowdown_of
from warplens.trace.model import Trace
from warplens.trace.schema import LIFE

_TOP = 3


@dataclass(frozen=True)
class KernelSummary:
    """One kernel, or one variant of a kernel that has several: `variant` is its label, else empty.

    Times are those of the recorded launches.

    `covered` and the shares in `top` are shares of the warps' lifetime, in exclusive time. `covered_least` and
    `covered_median` are over the warps, None where the trace does not have them. `cost` is the share of the kernel's
    time that the marks took, where known; `slowdown` is how many times as long marked launches took. `measured` and
    `estimated` are its ratio, one of them None. `sample` is the share of blocks that were recorded, None for all.
    """

    kernel: str
    ran: int
    recorded: int
    total_ns: int
    mean_ns: float
    regions: int
    records_per_warp: float
    covered: float
    covered_least: float | None
    covered_median: float | None
    cost: float | None
    measured: float | None
    estimated: float | None
    top: Sequence[tuple[str, float]]
    variant: str = ""
    slowdown: Slowdown | None = None
    sample: Mapping[str, Any] | None = None

    @property
    def name(self) -> str:
        return self.variant or self.kernel

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def summarise(trace: Trace, seen: Mapping[str, int], *, merge_variants: bool = False) -> list[KernelSummary]:
    """The recorded kernels, the longest first. Variants have rows of their own unless `merge_variants` is set."""
    if not len(trace):
        return []
    rows = trace.stats(by="kernel", merge_variants=merge_variants).rows
    out = []
    for one in kernel_variants(trace.meta.launches, merge=merge_variants):
        kernel, infos = one.kernel, one.launches
        label = "" if one.is_only_one else one.label
        known = seen.get(kernel, 0) if one.is_only_one else one.ran
        slowdown = slowdown_of(infos)
        total = sum(info.end_ns - info.begin_ns for info in infos)
        tracks = sum(info.tracks for info in infos)
        own = [row for row in rows if row.group == kernel and row.variant in ("", one.label) and row.region != LIFE]
        lived = sum(info.busy_cycles for info in infos) or 1
        out.append(
            KernelSummary(
                kernel=kernel,
                ran=max(known, len(infos)),
                recorded=len(infos),
                total_ns=total,
                mean_ns=total / len(infos),
                regions=len({row.region for row in own}),
                records_per_warp=2 * sum(row.count for row in own) / tracks if tracks else 0.0,
                covered=sum(row.exclusive for row in own) / lived,
                covered_least=min((info.covered["least"] for info in infos if info.covered), default=None),
                covered_median=_median([info.covered["median"] for info in infos if info.covered]),
                cost=profiling_cost(trace, kernel, infos),
                measured=slowdown.ratio if slowdown and slowdown.measured else None,
                estimated=slowdown.ratio if slowdown and not slowdown.measured else None,
                top=[(row.region, row.exclusive / lived) for row in sorted(own, key=lambda row: -row.exclusive)[:_TOP]],
                variant=label,
                slowdown=slowdown,
                sample=sample_share(infos),
            )
        )
    return sorted(out, key=lambda one: -one.total_ns)


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def unmarked(trace: Trace, seen: Mapping[str, int], notes: Mapping[str, Sequence[str]]) -> dict[str, str]:
    """Kernels that ran but are not in the trace, each with the reason where it is known."""
    recorded = {info.kernel for info in trace.meta.launches}
    names = dict.fromkeys([*seen, *notes])
    return {name: "; ".join(notes.get(name, ())) for name in names if name not in recorded}
