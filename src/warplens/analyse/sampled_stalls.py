"""What the warps of each region were stalled by, from the samples that a trace carries (`stalls=True`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from warplens.analyse.ncu_source import SourcePage, SourceRow, reason_name
from warplens.analyse.region_counters import BY_ADDRESS, PC_SAMPLING, AttributedPages, region_counters
from warplens.sass.pc_samples import PcSampling, SampledCode
from warplens.wording import percent, plural

if TYPE_CHECKING:
    from warplens.trace.model import Trace

_FEW_DROPPED = 0.01
"""A smaller share of dropped samples is not worth a word: they are spread over all code."""
_TOO_FEW = "no sample was taken of it; record more launches"


def sampled_stalls(trace: Trace) -> AttributedPages:
    """The samples of each region, and what speaks against them; empty for a trace without samples."""
    if not trace.meta.pc_samples:
        return AttributedPages(())
    sampled = PcSampling.from_json(trace.meta.pc_samples)
    codes = trace.verify()
    kernels = dict.fromkeys(info.kernel for info in trace.meta.launches)
    parts: dict[tuple[str, bool], list[SampledCode]] = {}
    for one in sampled.codes:
        if one.kernel in kernels:
            parts.setdefault((one.code, one.plain), []).append(one)
    notes = [f"{one.kernel}: {one.problem}" for code, one in codes.items() if one.problem and (code, False) in parts]
    seen = {one.kernel for one in sampled.codes}
    notes += [f"{name}: {_TOO_FEW}" for name in kernels if name not in seen and sampled.taken]
    pages = [
        _page(each, codes[code].fingerprint if code in codes else code)
        for (code, _), each in parts.items()
        if code not in codes or not codes[code].problem
    ]
    found = region_counters(trace, pages, PC_SAMPLING)
    by_address = {one.kernel for one in found.regions if one.basis == BY_ADDRESS}
    unused = sum(page.samples for page in pages if page.plain and page.kernel in by_address)
    return AttributedPages(found.regions, (*found.notes, *notes, *_remarks(sampled, unused)))


def sampling_line(trace: Trace) -> str:
    """How many samples there are, in words; empty for a trace without samples."""
    if not trace.meta.pc_samples:
        return ""
    sampled = PcSampling.from_json(trace.meta.pc_samples)
    if not sampled.taken:
        return "; ".join(sampled.problems) or "no samples"
    recorded = sum(one.total for one in sampled.codes if not one.plain)
    period = f", one per SM every {sampled.period:,} cycles" if sampled.period else ""
    return "; ".join([f"{recorded:,} samples of recorded kernels{period}", *_remarks(sampled, 0)])


def _page(parts: list[SampledCode], fingerprint: str) -> SourcePage:
    """The samples of one machine code as a page. Those of a kernel without marks come in a part for each file."""
    rows = [
        SourceRow(
            place,
            file=one.file,
            samples=sum(counts.values()),
            stalls={reason_name(reason): float(count) for reason, count in counts.items()},
        )
        for one in parts
        for place, counts in one.counts().items()
    ]
    first = parts[0]
    more = max(one.total for one in parts) - sum(row.samples for row in rows)
    rows.sort(key=lambda row: row.place)
    return SourcePage(first.kernel, not first.plain, rows, fingerprint, first.plain, max(more, 0.0))


def _remarks(sampled: PcSampling, unused: float) -> list[str]:
    said = list(sampled.problems)
    if sampled.taken and sampled.dropped > _FEW_DROPPED * sampled.taken:
        said.append(f"the GPU dropped {percent(sampled.dropped / sampled.taken)} of the samples")
    if sampled.overflows:
        said.append(f"the GPU's buffer for samples was full {plural(sampled.overflows, 'time')}, and samples were lost")
    if unused:
        said.append(f"{unused:,.0f} samples of launches without marks are not in this table")
    return said
