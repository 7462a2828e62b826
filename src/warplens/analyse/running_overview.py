"""How many warps were in which region since a program began: grows while it runs, in memory that does not."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.analyse.timeline import Segments, innermost, strips
from warplens.trace.model import Trace

Int = npt.NDArray[np.int64]

BINS = 480
FIRST_BIN_NS = 50_000_000
MOST_REGIONS = 64
"""Regions that are told apart; the time of others goes to the last one."""
OTHERS = "(other regions)"


@dataclass
class RunningOverview:
    """Warp time by region and bin. When the bins are used up, two become one."""

    begin_ns: int | None = None
    """The globaltimer at the begin of the first bin."""
    bin_ns: int = FIRST_BIN_NS
    used: int = 0
    """Bins that have begun."""
    time: dict[str, npt.NDArray[np.float64]] = field(default_factory=dict)

    def add(self, trace: Trace, since_ns: Int, now_ns: int) -> None:
        """Add what each launch of a trace did after its own `since_ns`, by position in the trace's launches; times are
        those of the globaltimer."""
        numbers = [info.launch for info in trace.meta.launches]
        origin = trace.meta.origin_ns
        if self.begin_ns is None:
            if not len(trace):
                return
            self.begin_ns = origin + int(trace.numpy("start_ns").min())
        place = np.zeros(max(numbers, default=0) + 1, np.int64)
        place[numbers] = np.arange(len(numbers))
        found = innermost(trace)
        since = since_ns[place[trace.numpy("launch")[found.row]]] - origin if len(found.row) else found.begin
        parts = Segments(found.row, np.maximum(found.begin, since), np.minimum(found.end, now_ns - origin))
        kept = parts.end > parts.begin
        parts = Segments(parts.row[kept], parts.begin[kept], parts.end[kept])
        self._make_room(now_ns)
        if len(parts.row):
            self._sum(trace, parts, self.begin_ns - origin)

    def _make_room(self, now_ns: int) -> None:
        assert self.begin_ns is not None
        while (now_ns - self.begin_ns) > BINS * self.bin_ns:
            self.bin_ns *= 2
            for name, bins in self.time.items():
                halves = bins.reshape(-1, 2).sum(axis=1)
                self.time[name] = np.concatenate((halves, np.zeros(BINS // 2)))
        self.used = max(self.used, -(-(now_ns - self.begin_ns) // self.bin_ns))

    def _sum(self, trace: Trace, parts: Segments, begin: int) -> None:
        first = max((int(parts.begin.min()) - begin) // self.bin_ns, 0)
        last = min(-(-(int(parts.end.max()) - begin) // self.bin_ns), BINS)
        if last <= first:
            return
        window = begin + first * self.bin_ns, begin + last * self.bin_ns
        made = strips(trace, "warp_index", last - first, window, parts)
        for name, bins in zip(made.regions, made.time.sum(axis=0), strict=True):
            if not bins.any():
                continue
            known = name if name in self.time or len(self.time) < MOST_REGIONS - 1 else OTHERS
            self.time.setdefault(known, np.zeros(BINS))[first:last] += bins

    def warps(self) -> dict[str, Any]:
        """The mean number of warps in each region, for the bins so far."""
        used = max(self.used, 1)
        return {name: bins[:used] / self.bin_ns for name, bins in self.time.items()}
