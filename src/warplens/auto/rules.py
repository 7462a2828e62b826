"""What automatic marks are asked for: classes of operations, and regions named by source lines.

The two rule sets (TTGIR for Triton, PTX for everything else) read the same `Auto` and return `RegionSite`s.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath

from warplens.errors import UsageError, did_you_mean

CLASSES = {
    "loads": "reads of global memory",
    "stores": "writes to global memory, atomics included",
    "copies": "asynchronous copies being issued: cp.async, TMA",
    "waits": "waiting for asynchronous work: copies, mbarriers, wgmma",
    "mma": "matrix products; asynchronous ones are the issue alone",
    "reduce": "reductions and scans",
    "barriers": "block and cluster barriers",
    "loops": "one region per iteration, with its number as value",
    "lines": "one region per source line that does work",
}
ALL = "all"
DEFAULT = ("loads", "stores", "copies", "waits", "mma", "reduce")
"""What `auto=True` and a bare `--auto` mean."""
MOST_MARKS = 256
"""Sites a kernel may have before the rules stop adding more, unless told otherwise."""


@dataclass(frozen=True)
class LineRange:
    """A region given by lines of a source file, both ends included; `file` matches a path's last parts."""

    name: str
    file: str
    first: int
    last: int

    def holds(self, file: str, line: int) -> bool:
        return self.first <= line <= self.last and self.is_in(file)

    def is_in(self, file: str) -> bool:
        """Whether `file` is the one that is meant."""
        parts, wanted = PurePath(file).parts, PurePath(self.file).parts
        return parts[-len(wanted) :] == wanted

    def __str__(self) -> str:
        return f"{self.name}={self.file}:{self.first}-{self.last}"


@dataclass(frozen=True)
class RegionSite:
    """A place that a rule marks: what the region is called, which class found it, and where it is in the source."""

    region: str
    kind: str
    location: str = ""


class LineCoverage:
    """Which line ranges hold code of a kernel that ran, and which lines have code at all."""

    def __init__(self) -> None:
        self.matched: set[str] = set()
        self.lines: dict[str, set[int]] = {}

    def add(self, matched: Iterable[str], lines: Mapping[str, Iterable[int]]) -> None:
        """Called for each kernel that ran, with what its marker found."""
        self.matched.update(matched)
        for file, numbers in lines.items():
            self.lines.setdefault(file, set()).update(numbers)

    def missing(self, ranges: Iterable[LineRange]) -> list[str]:
        """What to say of each range without code: where there is some."""
        return [f"region {wish}: {self._elsewhere(wish)}" for wish in ranges if wish.name not in self.matched]

    def _elsewhere(self, wish: LineRange) -> str:
        same = {file: lines for file, lines in self.lines.items() if wish.is_in(file)}
        if same:
            said = "; ".join(f"{file} has some in lines {_stretches(lines)}" for file, lines in same.items())
            return f"no kernel that ran has code in these lines; {said}"
        files = ", ".join(f"{PurePath(file).name} ({_stretches(lines)})" for file, lines in sorted(self.lines.items()))
        return f"no kernel that ran has code in a file {wish.file}; there is code in {files or 'none that is known'}"


def _stretches(lines: Iterable[int]) -> str:
    """`3-5, 9`: line numbers, neighbours joined."""
    parts: list[list[int]] = []
    for line in sorted(lines):
        if parts and line == parts[-1][1] + 1:
            parts[-1][1] = line
        else:
            parts.append([line, line])
    return ", ".join(f"{a}-{b}" if a < b else f"{a}" for a, b in parts)


def region_name(what: str, file: str, line: int) -> str:
    """What a site is called: the operation and the line its author knows, `load attn.py:57`.

    `what` is load, store, atomic, copy issue, copy wait, store wait, mbarrier wait, mma, mma issue, mma wait, reduce,
    scan, barrier, cluster barrier, mbarrier arrive, loop, line or work.
    """
    return f"{what} {PurePath(file).name}:{line}" if line else what


@dataclass(frozen=True)
class Auto:
    """Which marks to add to a kernel that need not have any."""

    classes: tuple[str, ...] = ()
    ranges: tuple[LineRange, ...] = ()
    most: int = MOST_MARKS

    def __bool__(self) -> bool:
        return bool(self.classes or self.ranges)

    def wants(self, kind: str) -> bool:
        return kind in self.classes

    @property
    def covers_all_code(self) -> bool:
        """Whether the regions are to account for all of a kernel's time."""
        return len(self.classes) == len(CLASSES)

    @staticmethod
    def of(
        auto: str | bool | Iterable[str] | None,
        regions: Mapping[str, str] | Iterable[str] | None = None,
        most: int = MOST_MARKS,
    ) -> Auto:
        """From what users write: `"loads,mma"`, `True`, `["waits"]`; `{"softmax": "attn.py:120-134"}`."""
        if most < 1:
            raise UsageError(f"most_marks={most}: must be at least 1")
        return Auto(_classes(auto), _ranges(regions), most)


def _classes(auto: str | bool | Iterable[str] | None) -> tuple[str, ...]:
    if auto is None or auto is False:
        return ()
    if auto is True:
        return DEFAULT
    names = [name.strip() for name in (auto.split(",") if isinstance(auto, str) else auto)]
    known = [*CLASSES, ALL]
    for name in names:
        if name not in known:
            raise UsageError(f"no rule {name!r}{did_you_mean(name, known)}; allowed are {', '.join(known)}")
    chosen = set(CLASSES) if ALL in names else set(names)
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
        raise UsageError(f"region {text!r}: lines count from 1, and the first must not come after the last")
    return LineRange(match[1], match[2], first, last)
