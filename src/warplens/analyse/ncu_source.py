"""Read Nsight Compute's source page: stall samples and counters for each SASS instruction, or for each source line."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from warplens.analyse.ncu import number_in
from warplens.errors import WarplensError
from warplens.sass.opcode_classes import opcode_fingerprint, opcode_of

_SAMPLES = (
    "Warp Stall Sampling (All Samples)", "Warp Stall Sampling (All Cycles)", "# Samples", "Sampling Data (All)",
)  # fmt: skip
_EXECUTED, _THREADS = "Instructions Executed", "Predicated-On Thread Instructions Executed"
_LINES = ("#", "Line", "Line No", "Line Number", "Source Line")
_FILES = ("File Path", "File Name", "File", "Source File")
_KERNELS, _SASS = ("Kernel Name", "Function Name"), "SASS Source"
_STALL = re.compile(r"(?:stall_|smsp__pcsamp_warps_issue_stalled_)([a-z_]+)$")
_REASONS = {
    "long_sb": "long_scoreboard", "short_sb": "short_scoreboard", "lg": "lg_throttle", "mio": "mio_throttle",
    "math": "math_pipe_throttle", "imc": "imc_miss", "tex": "tex_throttle", "sleep": "sleeping",
    "no_inst": "no_instruction", "no_instructions": "no_instruction", "dispatch": "dispatch_stall",
}  # fmt: skip
"""The source page's short names of stall reasons, and the names that the other pages use."""
_PER_THREAD = {
    "FADD": 1, "FMUL": 1, "FFMA": 2, "FADD2": 2, "FMUL2": 2, "FFMA2": 4, "FADD32I": 1, "FMUL32I": 1, "FFMA32I": 2,
    "DADD": 1, "DMUL": 1, "DFMA": 2, "HADD2": 2, "HMUL2": 2, "HFMA2": 4,
}  # fmt: skip
"""Floating-point operations of one thread; a fused multiply-add counts as two, as in ncu."""
_SHAPE = re.compile(r"\.(\d+)x(\d+)x(\d+)\b|\.(16|8)(8)(4|8|16|32|64|128)\b")
_WARPS_OF_GROUP = 4
SELECTED = "selected"
"""The reason of samples in which the warp issued: no stall."""


@dataclass(frozen=True)
class SourceRow:
    """One instruction or one line. `place` is its address from the kernel's first instruction, or its line."""

    place: int
    text: str = ""
    file: str = ""
    samples: float = 0.0
    executed: float = 0.0
    threads: float = 0.0
    sectors: float = 0.0
    sectors_ideal: float = 0.0
    wavefronts: float = 0.0
    conflicts: float = 0.0
    bytes: float = 0.0
    flops: float = 0.0
    stalls: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class SourcePage:
    """The page of one kernel, by instruction (`sass`) or by source line."""

    kernel: str
    sass: bool
    rows: Sequence[SourceRow]
    code: str = ""
    """The fingerprint of its code where that is known; else the rows' instructions say it."""
    plain: bool = False
    """Whether it is known to be of the kernel without marks."""
    more: float = 0.0
    """Samples of the kernel that none of the rows has."""

    @property
    def samples(self) -> float:
        """All samples of the kernel."""
        return sum(row.samples for row in self.rows) + self.more

    @property
    def fingerprint(self) -> str:
        """Compare with `KernelVerification.fingerprint`: whether the page is of the very code that was recorded."""
        return self.code or opcode_fingerprint(row.text for row in self.rows) if self.sass else ""


def is_source_page(text: str) -> bool:
    """Whether a text is a source page as CSV, and not one of the pages per kernel."""
    return any('"Source"' in line and ('"Address"' in line or '"#"' in line) for line in text.splitlines()[:8])


def parse_source_pages(text: str, source: str = "ncu output") -> list[SourcePage]:
    """Parse what `ncu --page source --csv` prints: a page for each launch that it measured."""
    pages: list[SourcePage] = []
    kernel = file = line = ""
    header: list[str] = []
    rows: list[SourceRow] = []

    def close() -> None:
        if header and rows and _EXECUTED in header:
            sass = _is_sass(header)
            pages.append(SourcePage(kernel, sass, _relative(rows) if sass else rows[:]))
        rows.clear()

    for cells in _cells(text, source):
        first = cells[0].strip() if cells else ""
        if first in _KERNELS and len(cells) > 1 and "Source" not in cells:
            if cells[1] != kernel or header:
                close()
            kernel, header = cells[1], []
        elif first in _FILES and len(cells) > 1 and "Source" not in cells:
            file = cells[1]
        elif "Source" in cells and ("Address" in cells or any(name in cells for name in _LINES)):
            close()
            header, line = _named(cells), ""
        elif header and len(cells) >= len(header) - 1:
            known = dict(zip(reversed(header), reversed(cells), strict=False))
            line = next((known[name] for name in _LINES if _place(known.get(name, "")) is not None), line)
            by_line = not _is_sass(header)
            row = _row({**known, _LINES[0]: line} if by_line else known, file, by_line, "Address" in header)
            rows += [row] if row is not None else []
    close()
    if not pages:
        raise WarplensError(
            f"{source}: no source page in it; make it with `ncu --import R.ncu-rep --page source --csv`, of a report "
            "with the section SourceCounters"
        )
    return pages


def _cells(text: str, source: str) -> Iterator[list[str]]:
    try:
        yield from csv.reader(io.StringIO(text))
    except csv.Error as error:
        raise WarplensError(f"{source}: not a CSV page of Nsight Compute: {error}") from None


def _named(cells: Sequence[str]) -> list[str]:
    """The header; in a page of lines with their instructions, the second `Source` is the instruction."""
    names = list(cells)
    if names.count("Source") > 1:
        names[names.index("Source", names.index("Source") + 1)] = _SASS
    return names


def _is_sass(header: Sequence[str]) -> bool:
    """Whether a page has one row per instruction and no lines of the source."""
    return "Address" in header and not any(name in header for name in _LINES)


def _row(cells: Mapping[str, str], file: str, by_line: bool, addressed: bool) -> SourceRow | None:
    """One row with counters. A page of lines with their instructions has them in the rows that have an address."""
    address = _place(cells.get("Address", ""))
    place = _place(cells[_LINES[0]]) if by_line else address
    if place is None or (addressed and address is None):
        return None
    text = cells.get(_SASS, cells.get("Source", "")).strip().rstrip(";").strip()
    executed, threads = _number(cells.get(_EXECUTED)), _number(cells.get(_THREADS))
    bits = _number(cells.get("Access Size"))
    return SourceRow(
        place,
        text,
        next((cells[name] for name in _FILES if cells.get(name)), file),
        samples=next((_number(cells[name]) for name in _SAMPLES if name in cells), 0.0),
        executed=executed,
        threads=threads,
        sectors=_number(cells.get("L2 Theoretical Sectors Global")),
        sectors_ideal=_number(cells.get("L2 Theoretical Sectors Global Ideal")),
        wavefronts=_number(cells.get("L1 Wavefronts Shared")),
        conflicts=_number(cells.get("L1 Wavefronts Shared Excessive")),
        bytes=threads * bits / 8,
        flops=_flops(text, executed, threads) if addressed else 0.0,
        stalls=_stalls(cells),
    )


def reason_name(given: str) -> str:
    """A stall reason by the name that it has everywhere in warplens."""
    return _REASONS.get(given, given)


def _stalls(cells: Mapping[str, str]) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, value in cells.items():
        match = _STALL.match(name)
        if match and (count := _number(value)):
            reason = reason_name(match[1])
            found[reason] = found.get(reason, 0.0) + count
    return found


def _flops(text: str, executed: float, threads: float) -> float:
    opcode = opcode_of(text)
    base = opcode.partition(".")[0]
    if base in _PER_THREAD:
        return _PER_THREAD[base] * threads
    shape = _SHAPE.search(opcode)
    if not base.endswith("MMA") or shape is None:
        return 0.0
    wide = shape[1] is not None
    m, n, k = (int(size) for size in (shape.group(1, 2, 3) if wide else shape.group(4, 5, 6)))
    return 2.0 * m * n * k * executed / (_WARPS_OF_GROUP if wide else 1)


def _relative(rows: Sequence[SourceRow]) -> list[SourceRow]:
    """Count addresses from the kernel's first instruction, and put the rows in their order."""
    start = min(row.place for row in rows)
    moved = (SourceRow(**{**vars(row), "place": row.place - start}) for row in rows)
    return sorted(moved, key=lambda row: row.place)


def _place(text: str) -> int | None:
    text = text.strip()
    try:
        return int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        return None


def _number(text: str | None) -> float:
    return number_in(text) or 0.0
