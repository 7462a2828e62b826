"""Spans of the code between regions, which has no records: from the end of one region to the begin of the next.

The weaver says which code a warp runs between two regions (weave/code_between.py); where it does not, or where records
were lost, the time stays outside all regions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from warplens.decode.decoded_rows import SPAN, DecodedRows, RowPlan
from warplens.decode.track_windows import TrackWindows
from warplens.record.capture import BETWEEN, Launch

Int64 = npt.NDArray[np.int64]
_NO_KEY = np.iinfo(np.int64).max


class _Regions:
    """Looks up the region of the code between two others, for the launches of one part."""

    def __init__(self, launches: Sequence[Launch], names: Sequence[str]) -> None:
        codes = {name: code for code, name in enumerate(names)}
        self.outside = len(names)
        """Stands for the start and the exit of a warp."""
        self.table_of = np.full(len(launches), -1, np.int64)
        tables: dict[tuple[int, int], int] = {}
        found: dict[int, int] = {}
        for number, launch in enumerate(launches):
            if launch.extra.get(BETWEEN):
                key = id(launch.extra[BETWEEN]), id(launch.regions)
                if key not in tables:
                    tables[key] = len(tables)
                    for after, before, own in _coded(launch, codes, self.outside):
                        found[int(self._key(tables[key], after, before))] = own
                self.table_of[number] = tables[key]
        self._keys = np.array([*sorted(found), _NO_KEY], np.int64)
        self._found = np.array([*(found[key] for key in sorted(found)), -1], np.int32)

    def _key(self, table: Int64 | int, after: Int64 | int, before: Int64 | int) -> Int64 | int:
        many = self.outside + 1
        return (table * many + after) * many + before

    def between(self, table: Int64, after: Int64, before: Int64) -> npt.NDArray[np.int32]:
        """The code's region, and a negative number where it is not known."""
        key = np.asarray(self._key(table, after, before))
        at = np.searchsorted(self._keys, key)
        known = (self._keys[at] == key) & (table >= 0) & (after >= 0) & (before >= 0)
        return np.where(known, self._found[at], -1).astype(np.int32)


def _coded(launch: Launch, codes: Mapping[str, int], outside: int) -> list[tuple[int, int, int]]:
    """The regions of the code between others by their places among the part's names."""
    known = {0: outside} | {number: codes[name] for number, name in launch.regions.items()}
    return [(known[after], known[before], known[own]) for after, before, own in launch.extra[BETWEEN]]


def add_work(
    launches: Sequence[Launch], windows: TrackWindows, plan: RowPlan, rows: DecodedRows, names: Sequence[str]
) -> tuple[RowPlan, DecodedRows]:
    """Return the plan and the rows with a span wherever a warp ran known code between two regions."""
    if not any(launch.extra.get(BETWEEN) for launch in launches):
        return plan, rows
    regions = _Regions(launches, names)
    table = regions.table_of[windows.launch]
    outermost = rows.parent < 0
    track_of = np.repeat(np.arange(len(windows)), np.diff(plan.row_start))
    spans = np.flatnonzero(outermost & (rows.kind == SPAN) & (table >= 0)[track_of])
    if not len(spans):
        return plan, rows
    own, region = track_of[spans], rows.region[spans].astype(np.int64)
    end, over = rows.start[spans] + rows.duration[spans], rows.open[spans] == 0
    tops, row_end = np.flatnonzero(outermost), plan.row_start[own + 1]
    next_top = np.minimum(np.append(tops, len(rows.start))[np.searchsorted(tops, spans, side="right")], row_end)
    # A gap is before each span, and after the last span of a track. Left and right of it are spans, or -1.
    leads = np.append(True, own[1:] != own[:-1])
    number = np.arange(len(spans))
    right = np.full(len(spans) + np.count_nonzero(leads), -1)
    right[number + np.cumsum(leads) - 1] = number
    left = np.append(-1, right[:-1])
    track = own[np.where(right >= 0, right, left)]
    begin = np.where(left >= 0, end[left], windows.start_clock[track])
    until = np.where(right >= 0, rows.start[spans[right]], windows.exit_clock[track])
    after = np.where(left >= 0, region[left], regions.outside)
    before = np.where(right >= 0, region[right], regions.outside)
    found = regions.between(table[track], after, before)
    whole = ((left >= 0) & (right >= 0)) | (windows.written <= windows.slots)[track]
    chosen = whole & (over[left] | (left < 0)) & (windows.exited[track] | (right >= 0)) & (until > begin) & (found >= 0)
    at = np.where(left >= 0, next_top[left], plan.row_start[track])
    work = {"region": found[chosen], "start": begin[chosen], "duration": (until - begin)[chosen]}
    marks = np.flatnonzero(outermost & (rows.kind != SPAN))
    stop = np.where(right >= 0, spans[right], plan.row_start[track + 1])
    rows, plan = rows.with_spans(plan, at[chosen], track[chosen], work)
    if len(marks):
        _enclose(rows, marks, at[chosen], stop[chosen])
    return plan, rows


def _enclose(rows: DecodedRows, marks: Int64, at: Int64, stop: Int64) -> None:
    """Make the inserted spans the parents of the instants and values inside them. `marks` and `stop` are row numbers as
    they were before spans were inserted at `at`."""
    span = np.searchsorted(at, marks, side="right") - 1
    inside = (span >= 0) & (marks < np.append(stop, 0)[span])
    marks, span = marks[inside], span[inside]
    rows.parent[marks + span + 1] = at[span] + span
    rows.depth[marks + span + 1] = 1
