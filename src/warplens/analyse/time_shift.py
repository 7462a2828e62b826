"""Correct durations for the cost of the marks, with constants measured on the same device."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from warplens.errors import WarplensError
from warplens.record.cost_keys import BEHIND_CYCLES, BEHIND_VALUE_CYCLES, EMPTY_CYCLES, RECORD_CYCLES, REGION_CYCLES
from warplens.trace.arrays import run_starts

if TYPE_CHECKING:
    from warplens.trace.model import Trace

SLACK = 1.05
"""The factor by which two records with nothing between them may be further apart than in the calibration, for what
compilers place between a clock read and its store. A larger factor would hide short work."""
STRAY = 1.0
"""The cycles by which an empty region may be longer than in the calibration, for the same reason."""
ROWS = 1 << 16
"""Rows to correct at a time: sorting is several times faster within the cache."""

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


def time_shift(trace: Trace) -> Floats:
    """Cycles of every row less the cost of marks; never negative, and never less than its inner spans together.

    A record delays the next one until its store has read its registers, but work between them hides that delay. So the
    time between two records of a track counts as zero where it is no longer than without any work, and otherwise in
    full, less the constant of a record. A begin and its end may be closer than other records, where the end stores
    both: a region with nothing recorded inside has the limit of an empty one. A span is the sum of what remains between
    its ends, less the constant of a region. The trace keeps its raw durations. Launches without a calibration are
    refused.
    """
    known = _constants(trace)
    launch, spans = trace.numpy("launch"), trace.of_kind("span")
    raw = trace.numpy("dur_cycles")
    end = trace.numpy("start_cycle") + raw
    work, pieces = _work(trace, spans, end, known)
    # The constant applies to regions with work in them and may be negative; regions without work stay at zero.
    once = (known.region - known.record)[launch]
    corrected = np.where(pieces > 0, np.maximum(work - once, 0.0), 0.0)
    if (once < 0).any():
        _cover_children(trace, spans, end, corrected)
    return np.where(spans, corrected, raw)


class _Constants(NamedTuple):
    """Calibration constants, indexed by launch."""

    region: Floats
    record: Floats
    behind: Floats
    noted: Floats
    empty: Floats


def _work(trace: Trace, spans: Mask, end: Ints, known: _Constants) -> tuple[Floats, Ints]:
    """The cycles of work in every row, and the number of pieces that records cut them into."""
    start, launch, values = trace.numpy("start_cycle"), trace.numpy("launch"), trace.of_kind("value")
    columns: tuple[npt.NDArray[Any], ...] = trace.numpy("track"), start, end, spans, values, launch
    heads = run_starts(columns[0])
    work, pieces = np.zeros(len(end)), np.zeros(len(end), np.int64)
    cuts = np.unique(np.searchsorted(heads, np.arange(0, len(end), ROWS)))
    for first, last in pairwise((*heads[cuts[cuts < len(heads)]].tolist(), len(end))):
        rows = slice(first, last)
        work[rows], pieces[rows] = _between(known, *(column[rows] for column in columns))
    return work, pieces


def _between(
    known: _Constants, track: Ints, start: Ints, end: Ints, spans: Mask, values: Mask, launch: Ints
) -> tuple[Floats, Ints]:
    """The same for some complete tracks."""
    heads = run_starts(track)
    # Tracks follow one another on one axis, so that a single sort orders the records of each.
    first, last = np.minimum.reduceat(start, heads), np.maximum.reduceat(end, heads)
    offset = np.cumsum(np.append(0, (last - first + 1)[:-1])) - first
    line = np.repeat(offset, np.diff(np.append(heads, len(start))))
    begins, ends = start + line, end + line
    moments = np.sort(np.concatenate((begins, ends[spans])))
    of_track, records = launch[heads], np.add.reduceat(1 + spans.astype(np.int64), heads)
    limit, each = np.repeat(known.behind[of_track], records), np.repeat(known.record[of_track], records)
    limit[np.searchsorted(moments, begins[values], "right") - 1] = known.noted[launch[values]]
    at, to = np.searchsorted(moments, begins), np.searchsorted(moments, ends)
    leaf = spans & (to - at == 1)
    limit[at[leaf]] = known.empty[launch[leaf]]
    gap = np.diff(moments)
    worked = gap > limit[:-1]
    cycles = np.append(0.0, np.cumsum(np.where(worked, np.maximum(gap - each[:-1], 0.0), 0.0)))
    pieces = np.append(0, np.cumsum(worked))
    return cycles[to] - cycles[at], pieces[to] - pieces[at]


def _cover_children(trace: Trace, spans: Mask, end: Ints, corrected: Floats) -> None:
    """Make every span at least as long as its direct children together: a negative constant lengthened each of them."""
    depth, parent, start = trace.numpy("depth"), trace.numpy("parent").astype(np.int64), trace.numpy("start_cycle")
    track = trace.numpy("track")
    inside = spans & (parent >= 0) & (end <= end[parent])
    # A span that outlasts the begin of its next sibling is asynchronous: such spans do not add up.
    inside[:-1] &= (start[1:] >= end[:-1]) | (depth[1:] > depth[:-1]) | (track[1:] != track[:-1])
    rows = np.flatnonzero(inside)
    rows = rows[np.argsort(depth[rows], kind="stable")]
    sums = np.zeros(len(corrected))
    for level in reversed(np.split(rows, run_starts(depth[rows])[1:])):
        around = parent[level]
        np.add.at(sums, around, corrected[level])
        corrected[around] = np.maximum(corrected[around], sums[around])


def _constants(trace: Trace) -> _Constants:
    """Constants from the calibrations of the launches; an empty region stands in for a missing `behind_cycles`."""
    infos = trace.meta.launches
    missing = [info.kernel for info in infos if REGION_CYCLES not in info.cost or RECORD_CYCLES not in info.cost]
    if missing or not infos:
        raise WarplensError(
            f"{missing[0] if missing else 'this trace'} has no calibration, so its durations cannot be corrected; call "
            "warplens.cuda.calibrate() before profiling, on the same GPU and with the profile's full="
        )
    constants = np.zeros((5, max(info.launch for info in infos) + 1))
    for info in infos:
        cost = info.cost
        behind = max(cost.get(BEHIND_CYCLES, 0.0), cost.get(EMPTY_CYCLES, 0.0)) * SLACK
        noted = max(cost.get(BEHIND_VALUE_CYCLES, 0.0) * SLACK, behind)
        empty = min(cost[EMPTY_CYCLES] + STRAY, behind) if EMPTY_CYCLES in cost else behind
        constants[:, info.launch] = cost[REGION_CYCLES], cost[RECORD_CYCLES], behind, noted, empty
    return _Constants(*constants)
