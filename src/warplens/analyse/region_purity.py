"""Whether each region timed what its author marked, from the verification that a trace carries.

Pure functions over `trace.meta`; they run no tool. Where several variants of a kernel share a region, the worst counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from warplens.record.capture import MACHINE_CODE
from warplens.sass.verified_regions import KernelVerification
from warplens.weave.work_names import is_between
from warplens.wording import percent

if TYPE_CHECKING:
    from warplens.trace.model import Trace

NOTABLE = 0.9
"""A region with a lower purity than this is worth a word where its time is discussed."""


@dataclass(frozen=True)
class RegionPurity:
    """How far a region's time is the time of the code that was marked.

    `purity` is the share of the instructions between its marks that belong to it, `complete` the share of its
    instructions that are between its marks, `own` the number of warplens's instructions between them. `flag` is half a
    sentence if most of its main work is elsewhere.
    """

    kernel: str
    region: str
    purity: float
    complete: float
    inside: int
    own: int
    copies: int
    flag: str = ""

    @property
    def evidence(self) -> dict[str, Any]:
        """What a finding about the region should carry."""
        known: dict[str, Any] = {"purity": round(self.purity, 3), "complete": round(self.complete, 3)}
        return known | ({"moved_out": self.flag} if self.flag else {})

    @property
    def caution(self) -> str:
        """A warning to show with the region's time; empty if the machine code is what was marked."""
        if self.flag:
            timed = "what its lines do" if is_between(self.region) else "what it marks"
            return f"`{self.region}` did not time {timed}: {self.flag}."
        if self.purity < NOTABLE:
            return f"Only {percent(self.purity)} of the instructions between the marks of `{self.region}` belong to it."
        return ""

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def verified_kernels(trace: Trace) -> dict[str, list[KernelVerification]]:
    """The verifications of each kernel of the trace, one for each machine code that its launches ran."""
    used = {info.extra.get(MACHINE_CODE): info.kernel for info in trace.meta.launches}
    found: dict[str, list[KernelVerification]] = {}
    for digest, document in trace.meta.verification.items():
        if digest in used:
            found.setdefault(used[digest], []).append(KernelVerification.from_json(document))
    return found


def region_purity(trace: Trace) -> dict[tuple[str, str], RegionPurity]:
    """By kernel and region; empty for a trace without a verification."""
    found: dict[tuple[str, str], RegionPurity] = {}
    for kernel, verified in verified_kernels(trace).items():
        for one in (region for known in verified for region in known.regions):
            new = RegionPurity(kernel, one.region, one.purity, one.complete, one.inside, one.own, one.copies, one.flag)
            known = found.get((kernel, one.region))
            found[kernel, one.region] = new if known is None else _worse(known, new)
    return found


def purity_by_region(trace: Trace) -> dict[str, RegionPurity]:
    """By region, over all kernels of the trace."""
    found: dict[str, RegionPurity] = {}
    for (_, region), one in region_purity(trace).items():
        found[region] = _worse(found[region], one) if region in found else one
    return found


def cautions(trace: Trace, kernel: str | None = None) -> dict[str, str]:
    """By region, the warning to show with its time; regions without one are left out."""
    chosen: Mapping[tuple[str, str], RegionPurity] = region_purity(trace)
    return {region: one.caution for (name, region), one in chosen.items() if one.caution and kernel in (None, name)}


def _worse(one: RegionPurity, other: RegionPurity) -> RegionPurity:
    return min(one, other, key=lambda known: (not known.flag, known.purity))
