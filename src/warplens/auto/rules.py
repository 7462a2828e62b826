"""The request for automatic marks: classes of operations, and regions defined by source lines.

The two rule sets (TTGIR for Triton, PTX for everything else) read the same `Auto` and return `RegionSite`s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import NamedTuple

from warplens.errors import UsageError, did_you_mean

CLASSES = {
    "loads": "reads of global memory",
    "stores": "writes to global memory, atomics included",
    "copies": "issue of asynchronous copies: cp.async, TMA",
    "waits": "waits for asynchronous work: copies, mbarriers, wgmma",
    "mma": "matrix products; only the issue of asynchronous ones",
    "reduce": "reductions and scans",
    "barriers": "block and cluster barriers",
    "work": "what is left: code between the other regions, without marks of its own, and loops without marks",
    "loops": "one region per iteration, with the iteration number as value",
    "lines": "one region per source line that does work",
    "edges": "which barrier and phase a wait waits for, and who arrives there",
}
ALL = "all"
DEFAULT = ("loads", "stores", "copies", "waits", "mma", "reduce", "barriers", "work", "edges")
"""The classes that `auto=True` and a bare `--auto` select."""
MOST_MARKS = 256
"""Default for the maximum number of marked sites per kernel."""


@dataclass(frozen=True)
class LineRange:
    """A region given by lines of a source file, both ends included; `file` matches the last parts of a path."""

    name: str
    file: str
    first: int
    last: int

    def holds(self, file: str, line: int) -> bool:
        return self.first <= line <= self.last and self.is_in(file)

    def is_in(self, file: str) -> bool:
        """Whether `file` is the file of this range."""
        parts, wanted = PurePath(file).parts, PurePath(self.file).parts
        return parts[-len(wanted) :] == wanted

    def __str__(self) -> str:
        return f"{self.name}={self.file}:{self.first}-{self.last}"


class RegionSite(NamedTuple):
    """A place that a rule marks: the region's name, the class that found it, and its source location."""

    region: str
    kind: str
    location: str = ""


class LineCoverage:
    """Collects which line ranges contain code of a kernel that ran, and which source lines have code."""

    def __init__(self) -> None:
        self.matched: set[str] = set()
        self.lines: dict[str, set[int]] = {}

    def add(self, matched: Iterable[str], lines: Mapping[str, Iterable[int]]) -> None:
        """Add the ranges and source lines found in one kernel that ran."""
        self.matched.update(matched)
        for file, numbers in lines.items():
            self.lines.setdefault(file, set()).update(numbers)

    def missing(self, ranges: Iterable[LineRange]) -> list[str]:
        """A message for each range without code, which says where there is code."""
        return [f"region {wanted}: {self._elsewhere(wanted)}" for wanted in ranges if wanted.name not in self.matched]

    def _elsewhere(self, wanted: LineRange) -> str:
        same = {file: lines for file, lines in self.lines.items() if wanted.is_in(file)}
        if same:
            said = "; ".join(f"{file} has code in lines {_line_list(lines)}" for file, lines in same.items())
            return f"no kernel that ran has code in these lines; {said}"
        files = ", ".join(f"{PurePath(file).name} ({_line_list(lines)})" for file, lines in sorted(self.lines.items()))
        return f"no kernel that ran has code in a file {wanted.file}; files with code: {files or 'none'}"


def _line_list(lines: Iterable[int]) -> str:
    """Format line numbers as `3-5, 9`."""
    parts: list[list[int]] = []
    for line in sorted(lines):
        if parts and line == parts[-1][1] + 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in parts)


def region_name(what: str, file: str, line: int) -> str:
    """The name of a region: the operation and its source line, `load attn.py:57`.

    `what` is load, store, atomic, copy issue, copy wait, store wait, mbarrier wait, spin wait, mma, mma issue, mma
    wait, reduce, scan, barrier, cluster barrier, mbarrier arrive, loop (one iteration), whole loop, body, line or work.
    """
    return f"{what} {file.rpartition('/')[2]}:{line}" if line else what


@dataclass(frozen=True)
class Auto:
    """Which marks to add to a kernel."""

    classes: tuple[str, ...] = ()
    ranges: tuple[LineRange, ...] = ()
    most: int = MOST_MARKS
    coarse: str = ""
    """Instead of classes: `body` for one region around the whole kernel, `loops` for its outermost loops as well."""
    is_default: bool = False
    """Whether nobody chose the classes."""

    def __bool__(self) -> bool:
        return bool(self.classes or self.ranges or self.coarse)

    def wants(self, kind: str) -> bool:
        return kind in self.classes

    @property
    def wants_block_barriers(self) -> bool:
        """Whether edges include barriers of the whole block, which the default leaves out: all warps take part, so the
        regions say who came last."""
        return self.wants("edges") and self.wants("barriers") and not self.is_default

    @property
    def covers_gaps(self) -> bool:
        """Whether the code between regions gets regions without marks of its own. Lines leave nothing between them."""
        return self.wants("work") and not self.wants("lines")

    @property
    def covers_all_code(self) -> bool:
        """Whether all classes of regions are selected, so that they account for all of a kernel's time."""
        return set(CLASSES) - {"edges"} <= set(self.classes)

    @staticmethod
    def of(
        auto: str | bool | Iterable[str] | None,
        regions: Mapping[str, str] | Iterable[str] | None = None,
        most: int = MOST_MARKS,
    ) -> Auto:
        """Parse what users write: `"loads,mma"`, `True`, `["waits"]`; `{"softmax": "attn.py:120-134"}`."""
        if most < 1:
            raise UsageError(f"most_marks={most}: must be at least 1")
        classes = _classes(auto)
        return Auto(classes, _ranges(regions), most, is_default=classes == DEFAULT)


def _classes(auto: str | bool | Iterable[str] | None) -> tuple[str, ...]:
    if auto is None or auto is False:
        return ()
    if auto is True:
        return DEFAULT
    names = [name.strip() for name in (auto.split(",") if isinstance(auto, str) else auto)]
    known = [*CLASSES, ALL]
    for name in names:
        if name not in known:
            raise UsageError(f"unknown class {name!r}{did_you_mean(name, known)}")
    chosen = set(CLASSES) if ALL in names else set(names)
    if "edges" in chosen:  # a wait's record is inside its region
        chosen.add("waits")
    return tuple(name for name in CLASSES if name in chosen)


def _ranges(regions: Mapping[str, str] | Iterable[str] | None) -> tuple[LineRange, ...]:
    if regions is None:
        return ()
    if isinstance(regions, str):
        regions = [regions]
    texts = [f"{k}={v}" for k, v in regions.items()] if isinstance(regions, Mapping) else list(regions)
    return tuple(_range(text) for text in texts)


def _range(text: str) -> LineRange:
    match = re.fullmatch(r"\s*([^=]+?)\s*=\s*(.+?):(\d+)(?:-(\d+))?\s*", text)
    if match is None:
        raise UsageError(f"region {text!r}: write NAME=FILE:FIRST-LAST, such as softmax=attn.py:120-134")
    first, last = int(match[3]), int(match[4] or match[3])
    if not 1 <= first <= last:
        raise UsageError(f"region {text!r}: line numbers start at 1, and the first must not come after the last")
    return LineRange(match[1], match[2], first, last)
