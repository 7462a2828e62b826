"""Assign the spans of a track to lanes of a timeline, and order their begins and ends.

The spans of a lane nest. Asynchronous spans, spans closed by a mismatched end, and spans deeper than Perfetto nests go
to lanes 1, 2, … instead of the track's own lane 0. `native/perfetto.c` implements the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from warplens.export.track_table import SPAN, VALUE, TrackRows

BEGIN, END, POINT = 1, 2, 3
"""Values of TrackEvent.Type."""

MAX_DEPTH = 500
"""Perfetto drops slices at a depth of more than 512."""

_PLAIN_DEPTH = 64
"""Tracks that nest deeper are processed row by row, since the vectorised code needs one pass per level."""

_UNKNOWN_PARENT, _NO_PARENT = -1, -2
"""A row without a parent, or whose parent was not selected, so that only its depth is known; or a row in no span."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Events:
    """Begins, ends and points, ordered so that the times of each lane never decrease.

    Perfetto would nest a slice inside an instant of the same time, so such an instant becomes a begin and an end.
    """

    row: npt.NDArray[np.int64]
    what: npt.NDArray[np.int64]
    lane: npt.NDArray[np.int64]
    track: npt.NDArray[np.int64]


def events_of(rows: TrackRows, row_start: Array, most: int = MAX_DEPTH) -> tuple[Events, Array, Array]:
    """The events of consecutive tracks, the lane of each row and the number of lanes of each track."""
    base = int(row_start[0])
    track_of = np.repeat(np.arange(len(row_start) - 1), np.diff(row_start))
    shown = np.flatnonzero(rows.kind[base : int(row_start[-1])] < VALUE)
    plain = _plain_tracks(rows, base + shown, track_of[shown], len(row_start) - 1, most)
    lane_of = np.zeros(len(track_of), np.int32)
    lanes = np.ones(len(row_start) - 1, np.int32)
    vectorised = shown[plain[track_of[shown]]]
    parts = [_plain_events(rows, base + vectorised, track_of[vectorised])]
    for track in np.flatnonzero(~plain).tolist():
        walked = walk(rows, int(row_start[track]), int(row_start[track + 1]), most)
        parts.append(Events(walked[:, 0], walked[:, 1], walked[:, 2], np.full(len(walked), track)))
        begins = walked[walked[:, 1] != END]
        lane_of[begins[:, 0] - base] = begins[:, 2]
        lanes[track] = walked[:, 2].max(initial=0) + 1
    joined = [np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "what", "lane", "track")]
    order = np.argsort(joined[3], kind="stable")
    return Events(*(values[order] for values in joined)), lane_of, lanes


def _plain_tracks(rows: TrackRows, row: Array, track: Array, tracks: int, most: int) -> npt.NDArray[np.bool_]:
    """Tracks whose depths, parents and times are consistent, so that all rows fit in lane 0."""
    plain = np.ones(tracks, bool)
    if not len(row):
        return plain
    depth, parent, start = rows.depth[row].astype(np.int64), rows.parent[row], rows.start[row]
    end = start + rows.duration[row]
    head = np.concatenate(([True], track[1:] != track[:-1]))
    limit = np.where(head, 0, np.concatenate(([0], depth[:-1] + (rows.kind[row[:-1]] == SPAN))))
    plain[track[(depth < 0) | (depth > limit) | (depth >= min(most, _PLAIN_DEPTH))]] = False
    for level in range(int(min(depth.max(), _PLAIN_DEPTH)) + 1):
        here = np.flatnonzero(depth == level)
        late = (end[here[:-1]] > start[here[1:]]) & (track[here[:-1]] == track[here[1:]])
        plain[track[here[:-1][late]]] = False
        if level == 0:
            plain[track[here[parent[here] >= 0]]] = False
            continue
        above = np.flatnonzero(depth == level - 1)
        outer = above[np.maximum(np.searchsorted(above, here) - 1, 0)] if len(above) else np.zeros(len(here), np.int64)
        wrong = (parent[here] != row[outer]) | (end[here] > end[outer])
        plain[track[here[wrong]]] = False
    return plain


def _plain_events(rows: TrackRows, row: Array, track: Array) -> Events:
    """Order rows that nest: row i at depth d begins after i begins and i - d ends, and ends after its inner rows."""
    count = len(row)
    depth, start = rows.depth[row].astype(np.int64), rows.start[row]
    closed = rows.kind[row] == SPAN
    closed[:-1] |= (start[1:] == start[:-1]) & (track[1:] == track[:-1])
    ends_before = np.concatenate(([0], np.cumsum(closed)))
    after = np.full(count, count)
    for level in range(int(depth.max(initial=-1)) + 1):
        here = np.flatnonzero(closed & (depth == level))
        stops = np.append(np.flatnonzero(depth <= level), count)
        after[here] = stops[np.searchsorted(stops, here, side="right")]
    begin_at = np.arange(count) + ends_before[:-1] - depth
    ends_at = (after + ends_before[after] - depth - 1)[closed]
    what = np.where(closed, BEGIN, POINT)
    total = count + int(ends_before[-1])
    order_row, order_what = np.empty(total, np.int64), np.full(total, END)
    order_row[begin_at], order_what[begin_at] = row, what
    order_row[ends_at] = row[closed]
    order_track = np.empty(total, np.int64)
    order_track[begin_at], order_track[ends_at] = track, track[closed]
    return Events(order_row, order_what, np.zeros(total, np.int64), order_track)


def walk(rows: TrackRows, first: int, last: int, most: int) -> Array:
    """The events of one track as (row, what, lane), row by row; the reference for the faster implementations."""
    kind, parents, depth = (values[first:last].tolist() for values in (rows.kind, rows.parent, rows.depth))
    start = rows.start[first:last].tolist()
    end = (rows.start[first:last] + rows.duration[first:last]).tolist()
    lanes: list[list[int]] = [[]]
    lane_of = [0] * len(kind)
    out: list[tuple[int, int, int]] = []

    def fits(lane: int, row: int, parent: int) -> bool:
        stack = lanes[lane]
        while stack:
            top = stack[-1]
            if end[top] > start[row] or (end[top] == start[row] and depth[top] < depth[row]):
                inside = lane == 0 and depth[top] < depth[row] if parent == _UNKNOWN_PARENT else top == parent
                return inside and end[row] <= end[top] and len(stack) < most
            out.append((stack.pop(), END, lane))
        return True

    def next_shown(row: int) -> int:
        return next((other for other in range(row + 1, len(kind)) if kind[other] < VALUE), len(kind))

    def is_asynchronous(row: int, parent: int) -> bool:
        if kind[row] != SPAN:
            return False
        if parent >= 0 and end[row] > end[parent]:
            return True
        following = next_shown(row)
        return following < len(kind) and depth[following] <= depth[row] and start[following] < end[row]

    for row in range(len(kind)):
        if kind[row] >= VALUE:
            continue
        parent = parents[row]
        if parent != _UNKNOWN_PARENT:
            parent = parent - first if first <= parent < first + row else _NO_PARENT
        lane = lane_of[parent] if parent >= 0 else 0
        if is_asynchronous(row, parent) or not fits(lane, row, parent):
            lane = next((other for other in range(1, len(lanes)) if fits(other, row, _NO_PARENT)), len(lanes))
            if lane == len(lanes):
                lanes.append([])
        lane_of[row] = lane
        if kind[row] == SPAN:
            out.append((row, BEGIN, lane))
            lanes[lane].append(row)
            continue
        following = next_shown(row)
        tied = following < len(kind) and start[following] == start[row]
        out += [(row, BEGIN, lane), (row, END, lane)] if tied else [(row, POINT, lane)]
    for lane, stack in enumerate(lanes):
        out += [(row, END, lane) for row in reversed(stack)]
    events = np.array(out, np.int64).reshape(-1, 3)
    events[:, 0] += first
    return events
