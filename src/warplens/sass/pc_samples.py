"""Samples of program counters that were taken while a profile ran, as a trace keeps them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

MAX_ROWS = 1 << 16
"""Instructions and lines that a trace keeps of all kernels together, the most sampled first."""

StallCounts = Mapping[str, int]
"""Samples by stall reason."""


@dataclass(frozen=True)
class SampledCode:
    """The samples of one kernel.

    `code` names the machine code that was recorded, as launches do. Without `plain` the samples are of this very code,
    and `rows` go by the address from its first instruction. With `plain` they are of the same kernel without marks, and
    rows go by the line in `file`. A row is its place, then number and samples of each reason in `reasons`.
    """

    kernel: str
    code: str
    reasons: tuple[str, ...]
    rows: tuple[tuple[int, ...], ...]
    total: int
    """All samples of the kernel: those of rows that were left out, or have no line, included."""
    plain: bool = False
    file: str = ""

    @staticmethod
    def of(
        kernel: str, code: str, counts: Mapping[int, StallCounts], total: int, *, plain: bool = False, file: str = ""
    ) -> SampledCode:
        """From samples by place and reason."""
        reasons = tuple(sorted({reason for each in counts.values() for reason in each}))
        number = {reason: at for at, reason in enumerate(reasons)}
        rows = tuple(
            (place, *(word for reason, samples in each.items() for word in (number[reason], samples)))
            for place, each in sorted(counts.items())
        )
        return SampledCode(kernel, code, reasons, rows, total, plain, file)

    def counts(self) -> dict[int, StallCounts]:
        """Samples by place and reason."""
        return {
            place: {self.reasons[at]: samples for at, samples in zip(words[::2], words[1::2], strict=True)}
            for place, *words in self.rows
        }


@dataclass(frozen=True)
class PcSampling:
    """All samples of a profile, or of several that were merged.

    `taken` counts every sample of the GPU, `dropped` those that it could not store, `other` those of code that was not
    recorded. `overflows` is how often its buffer was full. `period` is the number of cycles between two samples.
    `problems` says in one line each what went wrong.
    """

    codes: tuple[SampledCode, ...] = ()
    taken: int = 0
    dropped: int = 0
    other: int = 0
    overflows: int = 0
    period: int = 0
    problems: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(document: Mapping[str, Any]) -> PcSampling:
        """The inverse of `to_json`; unknown keys are ignored, and values of a wrong type raise a ValueError."""
        try:
            numbers = {name: int(document.get(name, 0)) for name in _NUMBERS}
            codes = tuple(_code(one) for one in document.get("codes", ()))
            return PcSampling(codes, problems=tuple(str(one) for one in document.get("problems", ())), **numbers)
        except (TypeError, AttributeError, LookupError, ValueError, OverflowError) as error:
            raise ValueError(f"these are no samples: {error}") from None

    def bounded(self) -> PcSampling:
        """The same with at most `MAX_ROWS` rows; the totals still count all samples."""
        weights = sorted((sum(row[2::2]) for one in self.codes for row in one.rows), reverse=True)
        if len(weights) <= MAX_ROWS:
            return self
        least = weights[MAX_ROWS]
        kept = (
            SampledCode(**{**vars(one), "rows": tuple(row for row in one.rows if sum(row[2::2]) > least)})
            for one in self.codes
        )
        return PcSampling(**{**vars(self), "codes": tuple(kept)})

    @staticmethod
    def merged(parts: Iterable[PcSampling]) -> PcSampling:
        """The samples of several profiles, such as those of the ranks of a job."""
        each = list(parts)
        sums = {name: sum(getattr(one, name) for one in each) for name in _NUMBERS if name != "period"}
        same: dict[tuple[str, str, bool, str], list[SampledCode]] = {}
        for code in (code for one in each for code in one.codes):
            same.setdefault((code.kernel, code.code, code.plain, code.file), []).append(code)
        return PcSampling(
            tuple(_added(codes) for codes in same.values()),
            period=max((one.period for one in each), default=0),
            problems=tuple(dict.fromkeys(line for one in each for line in one.problems)),
            **sums,
        )


_NUMBERS = tuple(one.name for one in fields(PcSampling) if one.type == "int")


def _added(codes: Sequence[SampledCode]) -> SampledCode:
    """The samples of one machine code, or one file, of several profiles."""
    first = codes[0]
    places: dict[int, Counter[str]] = {}
    for one in codes:
        for place, counts in one.counts().items():
            places.setdefault(place, Counter()).update(counts)
    total = sum(one.total for one in codes)
    return SampledCode.of(first.kernel, first.code, places, total, plain=first.plain, file=first.file)


def _code(document: Mapping[str, Any]) -> SampledCode:
    reasons = tuple(str(reason) for reason in document["reasons"])
    rows = tuple(tuple(int(word) for word in row) for row in document["rows"])
    if any(not _is_row(row, len(reasons)) for row in rows):
        raise ValueError("a row has no place, a reason without samples, or one that is not named")
    names = {name: str(document.get(name, "")) for name in ("kernel", "code", "file")}
    return SampledCode(
        reasons=reasons, rows=rows, total=int(document["total"]), plain=bool(document.get("plain")), **names
    )


def _is_row(row: Sequence[int], reasons: int) -> bool:
    return len(row) % 2 == 1 and all(0 <= at < reasons for at in row[1::2]) and min(row) >= 0
