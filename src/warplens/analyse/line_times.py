"""Time per source line: the exclusive time of the regions that begin on it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from warplens.analyse.kernel_variants import kernel_variants
from warplens.analyse.statistics import Statistics
from warplens.trace.model import Trace

_LOCATION = re.compile(r"^(?P<file>.+?):(?P<line>\d+)(?::\d+)?$")

_LINES = re.compile(r":(\d+)-(\d+)$")


@dataclass(frozen=True)
class LineTime:
    """One line of one file. `share` is a share of the lifetime of the kernel's warps."""

    file: str
    line: int
    regions: Sequence[str]
    cycles: int
    share: float


def line_times(trace: Trace, stats: Statistics | None = None) -> list[LineTime]:
    """Every line on which a region of the trace begins, by file, then by line."""
    found: dict[tuple[str, int], tuple[list[str], int, float]] = {}
    kernels = {one.label: one.kernel for one in kernel_variants(trace.meta.launches)}
    for row in stats or trace.stats():
        kernel = kernels.get(row.variant) or next(iter(kernels.values()), "")
        place = parse(trace.meta.locations_of(kernel).get(row.region, ""))
        if place is None:
            continue
        names, cycles, share = found.get(place, ([], 0, 0.0))
        named = names if row.region in names else [*names, row.region]
        found[place] = (named, cycles + row.exclusive, share + row.exclusive_share)
    return [
        LineTime(file, line, tuple(names), cycles, share)
        for (file, line), (names, cycles, share) in sorted(found.items())
    ]


def last_line(region: str, first: int) -> int:
    """The last line of a region that begins on the line `first`, if its name has one: 63 of `work attn.py:57-63`."""
    lines = _LINES.search(region)
    return max(first, int(lines[2])) if lines and int(lines[1]) == first else first


def parse(location: str) -> tuple[str, int] | None:
    """`("attn.py", 57)` of `attn.py:57` or `attn.py:57:3`."""
    match = _LOCATION.match(location)
    return (match["file"], int(match["line"])) if match else None
