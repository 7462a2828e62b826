"""Samples and counters per instruction, of Nsight Compute or of PC sampling, summed over the machine code of regions.

A page of the very code that was recorded is summed by address. Where a report has none, its page by source line is
summed over the lines that a region owns; that may be the kernel without marks. Both are never added up, every result
names its basis, and what could not be attributed is said.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from warplens.analyse.ncu import match_kernel
from warplens.analyse.ncu_source import SELECTED, SourcePage, SourceRow
from warplens.analyse.region_purity import verified_kernels
from warplens.sass.verified_regions import KernelVerification, Range, RegionCode
from warplens.wording import percent

if TYPE_CHECKING:
    from warplens.trace.model import Trace

NSIGHT_COMPUTE, PC_SAMPLING = "Nsight Compute", "pc sampling"
"""Who took the samples. PC sampling only has samples, no counters."""
BY_ADDRESS = "the marked kernel, by address"
BY_LINE, PLAIN_BY_LINE = "by source line", "the kernel without marks, by source line"
OTHER_CODE = (
    "the report has other machine code than the trace: it was measured without marks or compiled again, so its "
    "instructions are not attributed to regions"
)
_SUMS = ("samples", "executed", "threads", "sectors", "sectors_ideal", "wavefronts", "conflicts", "bytes", "flops")


@dataclass(frozen=True)
class RegionCounters:
    """What was counted in one region, those inside it included. `source` says by whom, `basis` how it was attributed.

    `share` is its share of the kernel's samples. `stalls` are samples by reason, most first; `selected` among them are
    those in which the warp issued. `self_samples` are without regions inside. `conflicts` are excessive wavefronts of
    shared memory, `sectors` 32-byte sectors of global memory, `bytes` and `flops` those that threads asked for.
    """

    kernel: str
    region: str
    source: str
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
        if top is None:
            return {}
        known: dict[str, Any] = {"stalled_by": top[0], "stall_share": round(top[1], 3)}
        known |= {"stall_samples": int(self.samples), "stall_source": f"{self.source}, {self.basis}"}
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

    @staticmethod
    def joined(parts: Iterable[AttributedPages]) -> AttributedPages:
        """What several tools measured, one after the other: nothing is added up."""
        each = list(parts)
        regions = tuple(row for one in each for row in one.regions)
        return AttributedPages(regions, tuple(dict.fromkeys(note for one in each for note in one.notes)))

    def to_json(self) -> dict[str, Any]:
        return {"regions": [one.to_json() for one in self.regions], "notes": list(self.notes)}


def region_counters(trace: Trace, pages: Iterable[SourcePage], source: str = NSIGHT_COMPUTE) -> AttributedPages:
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
    rows: list[RegionCounters] = []
    for kernel, each in by_kernel.items():
        found, problem = _attribute(kernel, source, verified[kernel], each)
        rows += found
        if problem:
            notes[f"{kernel}: {problem}"] = None
    return AttributedPages(tuple(rows), tuple(notes))


def _attribute(
    kernel: str, source: str, verified: Sequence[KernelVerification], pages: Sequence[SourcePage]
) -> tuple[list[RegionCounters], str]:
    """One way for all launches of a kernel: by address if there is a page of the recorded code, else by source line."""
    known = {one.fingerprint: one for one in verified if one.fingerprint}
    sass = [page for page in pages if page.sass]
    same = [(known[page.fingerprint], page) for page in sass if page.fingerprint in known]
    if same:
        total = sum(page.samples for _, page in same)
        names = dict.fromkeys(region.region for code, _ in same for region in code.regions)
        found = [_by_address((kernel, name, source), same, total) for name in names]
        left = len(sass) - len(same)
        return found, f"{left} of {len(sass)} launches ran other machine code and were left out" if left else ""
    lines = [page for page in pages if not page.sass]
    if not lines:
        return [], OTHER_CODE
    basis = PLAIN_BY_LINE if sass or all(page.plain for page in lines) else BY_LINE
    regions = verified[0].regions
    missing = [region.region for region in regions if not region.source_lines]
    told = f"no source lines of their own, so not attributed: {', '.join(missing)}" if missing else ""
    total = sum(page.samples for page in lines)
    inside = {one.region: _in_lines(one, lines) for one in regions if one.source_lines}
    return [
        _sum((kernel, name, source), basis, rows, total, sum(row.samples for row in rows))
        for name, rows in inside.items()
    ], told


def _by_address(
    names: tuple[str, str, str], pages: Sequence[tuple[KernelVerification, SourcePage]], total: float
) -> RegionCounters:
    inside: list[SourceRow] = []
    own = 0.0
    for code, page in pages:
        for region in (one for one in code.regions if one.region == names[1]):
            inside += _within(page, region.ranges)
            own += sum(row.samples for row in _within(page, region.self_ranges))
    return _sum(names, BY_ADDRESS, inside, total, own)


def _in_lines(region: RegionCode, pages: Sequence[SourcePage]) -> list[SourceRow]:
    return [
        row
        for page in pages
        for row in page.rows
        if any(first <= row.place <= last and _same_file(file, row.file) for file, first, last in region.source_lines)
    ]


def _same_file(one: str, other: str) -> bool:
    return not other or one == other or one.rpartition("/")[2] == other.rpartition("/")[2]


def _within(page: SourcePage, ranges: Sequence[Range]) -> list[SourceRow]:
    """The rows of a page, which are in the order of their addresses, that lie in ranges."""
    return [
        row
        for start, end in ranges
        for row in page.rows[bisect_left(page.rows, start, key=_place) : bisect_left(page.rows, end, key=_place)]
    ]


_place = attrgetter("place")


def _sum(
    names: tuple[str, str, str], basis: str, rows: Sequence[SourceRow], total: float, self_samples: float
) -> RegionCounters:
    """Add up rows; `names` are the kernel, the region and the source."""
    sums = {name: float(sum(getattr(row, name) for row in rows)) for name in _SUMS}
    stalls: dict[str, float] = {}
    for row in rows:
        for reason, count in row.stalls.items():
            stalls[reason] = stalls.get(reason, 0.0) + count
    kernel, region, source = names
    return RegionCounters(
        kernel,
        region,
        source,
        basis,
        share=sums["samples"] / total if total else 0.0,
        self_samples=self_samples,
        stalls=dict(sorted(stalls.items(), key=lambda item: -item[1])),
        **sums,
    )
