"""What the live views show: the state of a running program at one moment."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from warplens.analyse.hang import Hang, group_line
from warplens.analyse.sample_share import blocks_text, sample_share
from warplens.trace.model import Trace, empty_table
from warplens.trace.schema import LIFE
from warplens.view.rank_summary import LiveCollective, RankSummary
from warplens.wording import plural

MOST_GROUPS = 8
"""Groups of warps that are listed for one kernel."""
_MOST_KERNELS = 64
"""Kernels whose launches are counted in a summary: those launched most often."""


@dataclass(frozen=True)
class LiveKernel:
    """One kernel so far: its launches, those that were recorded, and those that run now."""

    name: str
    launches: int
    recorded: int
    running_s: float | None = None
    """How long the launch that runs now has run; None where none does."""


@dataclass(frozen=True)
class LiveState:
    """A running program at `made`, which is a time of the monotonic clock. `trace` has the latest spans, and `hangs`
    where the warps of running launches are. `overview` has the mean number of warps in each region from the begin of
    the program on, in bins of `bin_ns`."""

    number: int = 0
    made: float = field(default_factory=time.monotonic)
    elapsed_s: float = 0.0
    program: str = ""
    ended: bool = False
    kernels: Sequence[LiveKernel] = ()
    trace: Trace = field(default_factory=lambda: Trace(empty_table()))
    hangs: Sequence[Hang] = ()
    records: int = 0
    """Slots that were read from running launches so far."""
    full_tracks: int = 0
    overview: Mapping[str, Any] = field(default_factory=dict)
    overview_begin_ns: int = 0
    bin_ns: int = 1
    last_launch: tuple[str, float] | None = None
    """The kernel that was launched last, recorded or not, and how many seconds before `made`."""
    collectives: Sequence[LiveCollective] = ()
    cost_s: float = 0.0
    """What it took to make this state."""
    notes: Sequence[str] = ()

    @property
    def age_s(self) -> float:
        return time.monotonic() - self.made

    def warnings(self) -> list[str]:
        """What is not shown, and why."""
        said = list(self.notes)
        share = sample_share(self.trace.meta.launches)
        if share is not None:
            said.append(blocks_text(share).replace("recorded", "shown"))
        if self.full_tracks:
            said.append(
                f"the buffers of {plural(self.full_tracks, 'warp')} are full, and what these do now is not recorded; "
                "full='ring' (--full ring) keeps the latest records instead"
            )
        return said

    def summary(self) -> RankSummary:
        """What the view of a whole job shows of this program; made without a pass over the spans."""
        often = sorted(self.kernels, key=lambda kernel: -kernel.launches)[:_MOST_KERNELS]
        return RankSummary(
            self.ended,
            self.age_s,
            {kernel.name: kernel.running_s for kernel in self.kernels if kernel.running_s is not None},
            {kernel.name: kernel.launches for kernel in often},
            sum(kernel.launches for kernel in self.kernels),
            self.last_launch,
            self.collectives,
            [f"{hang.kernel}: {group_line(hang.groups[0])}" for hang in self.hangs if hang.groups],
        )

    def where(self) -> list[dict[str, Any]]:
        """Where the warps of each running launch are, by groups."""
        return [
            {
                "kernel": hang.kernel,
                "running": hang.running,
                "ended": hang.record.ended,
                "unstarted": hang.record.unstarted,
                "groups": [group_line(group) for group in hang.groups[:MOST_GROUPS]],
                "more": max(len(hang.groups) - MOST_GROUPS, 0),
            }
            for hang in self.hangs
        ]

    def regions(self) -> list[dict[str, Any]]:
        """Each region of the trace: how many warps are in it now, and the statistics of its latest spans. Shares are
        those of the time in regions, without inner ones."""
        now = self._warps_now()
        rows = []
        found = [row for row in self.trace.stats(merge_variants=True) if row.region != LIFE]
        # Of a track's life, only the latest part may be known.
        whole = sum(row.exclusive_ns for row in found) or 1
        for row in found:
            known = {"count": row.count, "mean_ns": row.mean_ns, "max_ns": row.max_ns}
            share = row.exclusive_ns / whole
            rows.append({"name": row.region, "now": now.pop(row.region, 0), **known, "share": share})
        rows += [{"name": name, "now": count, "count": 0} for name, count in now.items()]
        return rows

    def _warps_now(self) -> dict[str, int]:
        found: dict[str, int] = {}
        for hang in self.hangs:
            for group in hang.groups:
                if group.regions:
                    found[group.regions[-1]] = found.get(group.regions[-1], 0) + group.count
        return found


def newest_ns(trace: Trace) -> int:
    """The globaltimer of the newest record of a trace."""
    if not len(trace):
        return 0
    ends = trace.numpy("start_ns") + np.where(trace.numpy("open"), 0, trace.numpy("dur_ns"))
    return int(ends.max()) + trace.meta.origin_ns
