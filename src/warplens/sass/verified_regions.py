"""What the machine code holds between the ends of a region: the result of a verification, and its JSON."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

MAX_EXAMPLES = 8
"""Moved instructions that a trace keeps of each region and direction."""
MAX_INSTANCES = 32
MAX_RANGES = 256
MAX_REGIONS = 256
MAX_SOURCE_LINES = 32

SourceLines = tuple[str, int, int]
"""A file, and the first and the last line."""
Range = tuple[int, int]
"""Addresses from the first up to, not including, the second."""


@dataclass(frozen=True)
class MovedInstruction:
    """An instruction on the wrong side of a mark. `where` is before, after or inside; `belongs` names its regions."""

    address: int
    text: str
    kind: str
    where: str
    line: int = 0
    belongs: str = ""


@dataclass(frozen=True)
class RegionInstance:
    """One copy of a region: an unrolled loop has several. `begin` is the address of its begin's clock read."""

    begin: int
    instructions: int
    own: int
    counts: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class RegionCode:
    """One region in the machine code of one kernel. Counts are instructions in the code, not executions.

    `kept` of its instructions are between its marks, `moved_out` are elsewhere; `moved_in` ones are between its marks
    and belong elsewhere; `own` ones are warplens's. `counts` are those between its marks by class, without `own`.
    """

    region: str
    kept: int
    moved_in: int
    moved_out: int
    own: int
    counts: Mapping[str, int] = field(default_factory=dict)
    moved_in_counts: Mapping[str, int] = field(default_factory=dict)
    moved_out_counts: Mapping[str, int] = field(default_factory=dict)
    flag: str = ""
    """Why the region did not time what was marked: most of its main work is outside. Empty if it did."""
    copies: int = 0
    instances: Sequence[RegionInstance] = ()
    moved: Sequence[MovedInstruction] = ()
    ranges: Sequence[Range] = ()
    self_ranges: Sequence[Range] = ()
    """`ranges` without those of regions inside it."""
    source_lines: Sequence[SourceLines] = ()
    """The lines of the source that it owns."""

    @property
    def inside(self) -> int:
        """Instructions of the kernel between its marks."""
        return self.kept + self.moved_in

    @property
    def purity(self) -> float:
        """The share of the kernel's instructions between its marks that belong to it."""
        return self.kept / self.inside if self.inside else float(not self.moved_out)

    @property
    def complete(self) -> float:
        """The share of its instructions that are between its marks."""
        total = self.kept + self.moved_out
        return self.kept / total if total else 1.0

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"purity": round(self.purity, 4), "complete": round(self.complete, 4)}


@dataclass(frozen=True)
class KernelVerification:
    """The regions of one kernel's machine code, or in `problem` the one line that says why they are not known."""

    kernel: str
    regions: Sequence[RegionCode] = ()
    instructions: int = 0
    own: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)
    missing: Sequence[str] = ()
    """Regions that have marks but no clock read in the machine code: ptxas found that they are never reached."""
    source: str = ""
    """Which machine code was read."""
    fingerprint: str = ""
    """A hash of its opcodes, by which reports of other tools are recognised."""
    problem: str = ""

    def __getitem__(self, region: str) -> RegionCode:
        return next(one for one in self.regions if one.region == region)

    def to_json(self) -> dict[str, Any]:
        return asdict(self) | {"regions": [one.to_json() for one in self.regions]}

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> KernelVerification:
        """The inverse of `to_json`; unknown keys are ignored, and values of a wrong type raise a ValueError."""
        try:
            known = _typed(KernelVerification, document)
            known["regions"] = tuple(_region(one) for one in document.get("regions", ()))
            known["missing"] = tuple(str(one) for one in document.get("missing", ()))
            return KernelVerification(**known)
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as error:
            raise ValueError(f"this is no verification: {error}") from None


def _region(document: Mapping[str, Any]) -> RegionCode:
    known = _typed(RegionCode, document)
    known["instances"] = tuple(RegionInstance(**_typed(RegionInstance, one)) for one in document.get("instances", ()))
    known["moved"] = tuple(MovedInstruction(**_typed(MovedInstruction, one)) for one in document.get("moved", ()))
    for name in ("ranges", "self_ranges"):
        known[name] = tuple((int(start), int(end)) for start, end in document.get(name, ()))
    known["source_lines"] = tuple(
        (str(file), int(first), int(last)) for file, first, last in document.get("source_lines", ())
    )
    return RegionCode(**known)


def _typed(cls: type, document: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers, texts and counts of a document that `cls` has fields for, each of its type."""
    known: dict[str, Any] = {}
    for one in fields(cls):
        if one.name not in document:
            continue
        value, kind = document[one.name], str(one.type)
        if kind == "int":
            known[one.name] = int(value)
        elif kind == "str":
            known[one.name] = str(value)
        elif kind == "Mapping[str, int]":
            known[one.name] = {str(key): int(count) for key, count in value.items()}
    return known


def ranges_of(addresses: Iterable[int], step: int) -> tuple[Range, ...]:
    """Join addresses of instructions that follow each other."""
    found: list[list[int]] = []
    for address in sorted(addresses):
        if found and found[-1][1] == address:
            found[-1][1] = address + step
        else:
            found.append([address, address + step])
    return tuple((start, end) for start, end in found)
