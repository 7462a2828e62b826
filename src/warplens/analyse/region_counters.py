"""Nsight Compute's samples and counters, summed over the machine code of each region.

A page of the very code that was recorded is summed by address. Where a report has none, its page by source line is
summed over the lines that a region owns; that may be the kernel without marks. Both are never added up, every result
names its basis, and what could not be attributed is said.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from warplens.analyse.ncu import match_kernel
from warplens.analyse.ncu_source import SELECTED, SourcePage, SourceRow
from warplens.analyse.region_purity import verified_kernels
from warplens.sass.verified_regions import KernelVerification, Range, RegionCode
from warplens.wording import percent

if TYPE_CHECKING:
    from warplens.trace.model import Trace

BY_ADDRESS = "the marked kernel, by address"
BY_LINE, PLAIN_BY_LINE = "by source line", "the kernel without marks, by source line"
OTHER_CODE = (
    "the report has other machine code than the trace: it was measured without marks or compiled anew, so its "
    "instructions are not attributed to regions"
)
_SUMS = ("samples", "executed", "threads", "sectors", "sectors_ideal", "wavefronts", "conflicts", "bytes", "flops")


@dataclass(frozen=True)
class RegionCounters:
    """What Nsight Compute counted in one region, those inside it included. `basis` says how it was attributed.

    `share` is its share of the kernel's samples. `stalls` are samples by reason, most first; `selected` among them are
    those in which the warp issued. `self_samples` are without regions inside. `conflicts` are excessive wavefronts of
    shared memory, `sectors` 32-byte sectors of global memory, `bytes` and `flops` those that threads asked for.
    """

    kernel: str
    region: str
    basis: str
    samples: float
    share: float
    self_samples: float
    executed: float
    threads: float
    sectors: float
    sectors_ideal: float
    wavefronts: float
    conflicts: float
    bytes: float
    flops: float
    stalls: Mapping[str, float] = field(default_factory=dict)

    @property
    def stall_shares(self) -> dict[str, float]:
        """Shares of the samples by reason, most first, without those in which the warp issued."""
        return {
            reason: count / self.samples for reason, count in self.stalls.items() if self.samples and reason != SELECTED
        }

    @property
    def evidence(self) -> dict[str, Any]:
        """What a finding about the region should carry."""
        top = next(iter(self.stall_shares.items()), None)
        known: dict[str, Any] = {"ncu_basis": self.basis, "ncu_samples": self.samples}
        if top is not None:
            known |= {"ncu_stall": top[0], "ncu_stall_share": round(top[1], 3)}
        if self.sectors > self.sectors_ideal > 0:
            known["ncu_sectors_excess"] = round(self.sectors / self.sectors_ideal, 3)
        if self.conflicts:
            known["ncu_conflicts"] = self.conflicts
        return known

    @property
    def sentence(self) -> str:
        """The most important number in words; empty without samples."""
        top = next(iter(self.stall_shares.items()), None)
        if top is None:
            return ""
        return f"{percent(self.share)} of the samples; {percent(top[1])} of them stalled by {top[0]}"

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"stall_shares": self.stall_shares}


@dataclass(frozen=True)
class AttributedPages:
    """The counters of all regions, and a line for each page that could not be attributed."""

    regions: Sequence[RegionCounters]
    notes: Sequence[str] = ()

    def to_json(self) -> dict[str, Any]:
        return {"regions": [one.to_json() for one in self.regions], "notes": list(self.notes)}


def region_counters(trace: Trace, pages: Iterable[SourcePage]) -> AttributedPages:
    """Attribute each kernel's pages to its regions; several launches of one kernel are added up."""
    verified = verified_kernels(trace)
    by_kernel: dict[str, list[SourcePage]] = {}
    notes: dict[str, None] = {}
    for page in pages:
        kernel = match_kernel(page.kernel, list(verified)) if verified else None
        if kernel is None:
            notes[f"{page.kernel}: the trace has no verified kernel of this name"] = None
        else:
            by_kernel.setdefault(kernel, []).append(page)
    rows: dict[tuple[str, str], list[RegionCounters]] = {}
    for kernel, each in by_kernel.items():
        found, problem = _attribute(kernel, verified[kernel], each)
        for one in found:
            rows.setdefault((kernel, one.region), []).append(one)
        if problem:
            notes[f"{kernel}: {problem}"] = None
    return AttributedPages(tuple(_added(each) for each in rows.values()), tuple(notes))


def _attribute(
    kernel: str, verified: Sequence[KernelVerification], pages: Sequence[SourcePage]
) -> tuple[list[RegionCounters], str]:
    """One way for all launches of a kernel: by address if the report has the recorded code, else by source line."""
    known = {one.fingerprint: one for one in verified if one.fingerprint}
    sass = [page for page in pages if page.sass]
    same = [(known[page.fingerprint], page) for page in sass if page.fingerprint in known]
    if same:
        found = [_by_address(kernel, region, page) for code, page in same for region in code.regions]
        left = len(sass) - len(same)
        return found, f"{left} of {len(sass)} launches ran other machine code and were left out" if left else ""
    lines = [page for page in pages if not page.sass]
    if not lines:
        return [], OTHER_CODE
    basis = PLAIN_BY_LINE if sass else BY_LINE
    regions = verified[0].regions
    missing = [region.region for region in regions if not region.source_lines]
    told = f"no source lines of their own, so not attributed: {', '.join(missing)}" if missing else ""
    return [_by_line(kernel, one, page, basis) for page in lines for one in regions if one.source_lines], told


def _by_address(kernel: str, region: RegionCode, page: SourcePage) -> RegionCounters:
    inside = [row for row in page.rows if _within(row.place, region.ranges)]
    own = sum(row.samples for row in page.rows if _within(row.place, region.self_ranges))
    return _sum(kernel, region.region, BY_ADDRESS, inside, _total(page), own)


def _by_line(kernel: str, region: RegionCode, page: SourcePage, basis: str) -> RegionCounters:
    inside = [
        row
        for row in page.rows
        if any(first <= row.place <= last and _same_file(file, row.file) for file, first, last in region.source_lines)
    ]
    return _sum(kernel, region.region, basis, inside, _total(page), sum(row.samples for row in inside))


def _total(page: SourcePage) -> float:
    return sum(row.samples for row in page.rows)


def _same_file(one: str, other: str) -> bool:
    return not other or one == other or one.rpartition("/")[2] == other.rpartition("/")[2]


def _within(address: int, ranges: Sequence[Range]) -> bool:
    return any(start <= address < end for start, end in ranges)


def _sum(
    kernel: str, region: str, basis: str, rows: Sequence[SourceRow], total: float, self_samples: float
) -> RegionCounters:
    sums = {name: float(sum(getattr(row, name) for row in rows)) for name in _SUMS}
    stalls: dict[str, float] = {}
    for row in rows:
        for reason, count in row.stalls.items():
            stalls[reason] = stalls.get(reason, 0.0) + count
    return RegionCounters(
        kernel,
        region,
        basis,
        share=sums["samples"] / total if total else 0.0,
        self_samples=self_samples,
        stalls=dict(sorted(stalls.items(), key=lambda item: -item[1])),
        **sums,
    )


def _added(each: Sequence[RegionCounters]) -> RegionCounters:
    """One region of several launches: sums, and the mean share."""
    if len(each) == 1:
        return each[0]
    stalls: dict[str, float] = {}
    for one in each:
        for reason, count in one.stalls.items():
            stalls[reason] = stalls.get(reason, 0.0) + count
    sums = {name: float(sum(getattr(one, name) for one in each)) for name in (*_SUMS, "self_samples")}
    share = sum(one.share for one in each) / len(each)
    first = each[0]
    ordered = dict(sorted(stalls.items(), key=lambda item: -item[1]))
    return RegionCounters(first.kernel, first.region, first.basis, share=share, stalls=ordered, **sums)
