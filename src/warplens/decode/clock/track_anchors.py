"""The anchors of tracks: where clocks and the globaltimer were read together."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from warplens.decode.clock.anchor_fit import UNIT_BITS
from warplens.decode.clock.launch_fit import LaunchAnchors
from warplens.decode.clock.track_units import TrackUnits
from warplens.decode.decoded_rows import DecodedRows, RowPlan
from warplens.decode.track_windows import TrackWindows, plausible_pace

Int64 = npt.NDArray[np.int64]


@dataclass(frozen=True)
class TrackAnchors:
    """The anchors of each track: its start, its exit, and its anchor records within its lifetime."""

    windows: TrackWindows
    plan: RowPlan
    rows: DecodedRows

    @cached_property
    def units(self) -> TrackUnits:
        return TrackUnits(self.windows.bounds, self.windows.sm)

    def anchors(self, tracks: Int64 | None = None) -> LaunchAnchors:
        windows = self.windows
        if tracks is None:
            tracks = np.arange(len(windows))
        unit = (windows.launch[tracks] << UNIT_BITS) + windows.sm[tracks]
        exited = windows.exited[tracks]
        done = tracks[exited]
        count = self.plan.anchor_start[tracks + 1] - self.plan.anchor_start[tracks]
        inner = np.repeat(np.arange(len(tracks)), count)
        at = np.arange(len(inner)) + np.repeat(self.plan.anchor_start[tracks] - np.cumsum(count) + count, count)
        ns, clock, track = self.rows.anchor_ns[at], self.rows.anchor_clock[at], tracks[inner]
        good = (ns >= windows.start_ns[track]) & (~windows.exited[track] | (ns <= windows.exit_ns[track]))
        good &= plausible_pace(clock - windows.start_clock[track], ns - windows.start_ns[track])
        clocks = windows.start_clock[tracks], windows.exit_clock[done], clock[good]
        times = windows.start_ns[tracks], windows.exit_ns[done], ns[good]
        units = unit, unit[exited], unit[inner[good]]
        return LaunchAnchors(*map(np.concatenate, (units, clocks, times)))
