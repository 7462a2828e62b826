"""Durations without what the marks themselves added, by constants measured on the device that made the trace."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from warplens.errors import WarplensError

if TYPE_CHECKING:
    from warplens.trace.model import Trace

REGION_CYCLES, RECORD_CYCLES, EMPTY_CYCLES = "region_cycles", "record_cycles", "empty_cycles"
"""Keys of a launch's cost: what a region measures beyond the work in it, what each record inside adds to it, and what a
region without work measures."""
ALONE_CYCLES = "record_alone_cycles"
"""Another: what a record takes where nothing hides it."""
SLOWDOWN, MEASURED = "slowdown", "slowdown_measured"
"""More: how much longer the kernel takes for its marks, estimated, and in this run with and without them."""


def time_shift(trace: Trace) -> npt.NDArray[np.float64]:
    """Cycles of every row less the constant of a region and that of each record inside; never below zero, and zero
    where the region measures no more than an empty one.

    The trace keeps its raw durations. Launches without a calibration are refused: nothing is assumed.
    """
    fixed, each, empty = _constants(trace)
    launch = trace.numpy("launch")
    spans = trace.of_kind("span")
    raw = trace.numpy("dur_cycles").astype(np.float64)
    alone = raw - each[launch] * records_inside(trace)
    # The constant is that of regions with work in them, and may be negative: nothing comes of nothing.
    corrected = np.where(alone <= empty[launch], 0.0, np.maximum(alone - fixed[launch], 0.0))
    return np.where(spans, corrected, raw)


def records_inside(trace: Trace) -> npt.NDArray[np.int64]:
    """How many records each row's span encloses: two per span, one per instant or value, at any depth below it."""
    depth, parent = trace.numpy("depth"), trace.numpy("parent").astype(np.int64)
    own = np.where(trace.of_kind("span"), 2 - trace.numpy("open").astype(np.int64), 1)
    inside = np.zeros(len(trace), np.int64)
    for level in range(int(depth.max(initial=0)), 0, -1):
        rows = np.flatnonzero((depth == level) & (parent >= 0))
        np.add.at(inside, parent[rows], own[rows] + inside[rows])
    return inside


def _constants(trace: Trace) -> npt.NDArray[np.float64]:
    """What a region, each record inside and an empty region measure, by launch."""
    infos = trace.meta.launches
    missing = [info.kernel for info in infos if REGION_CYCLES not in info.cost or RECORD_CYCLES not in info.cost]
    if missing or not infos:
        raise WarplensError(
            f"{missing[0] if missing else 'this trace'} has no calibration, so its durations cannot be corrected; call "
            "warplens.cuda.calibrate() before profiling, on the same GPU and with the profile's full="
        )
    constants = np.zeros((3, max(info.launch for info in infos) + 1))
    for info in infos:
        cost = info.cost
        constants[:, info.launch] = cost[REGION_CYCLES], cost[RECORD_CYCLES], cost.get(EMPTY_CYCLES, 0.0)
    return constants
