"""The innermost region of every track over time, binned for drawing, and the rows to draw it on."""

from __future__ import annotations

import ctypes
from bisect import bisect_left, insort
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from warplens import native
from warplens.analyse.groups import unique_rows
from warplens.analyse.lifetimes import Lifetimes
from warplens.errors import UsageError, check_name
from warplens.trace.model import Trace

Int = npt.NDArray[np.int64]

ROWS: dict[str, tuple[str, ...]] = {
    "sm": ("rank", "device", "sm"),
    "block": ("rank", "launch", "block"),
    "warp": ("rank", "launch", "block", "warp", "lane"),
    "warp_index": ("warp",),
}
"""What a row of a timeline or heat map can stand for, and the columns that identify it."""


@dataclass(frozen=True)
class Segments:
    """Intervals in which one span was the innermost of its track. They never overlap on a track."""

    row: Int
    begin: Int
    end: Int


@dataclass(frozen=True)
class TimelineRows:
    """The rows of a timeline: one label each, and the row of every track, which has `spans` spans."""

    by: str
    keys: Sequence[tuple[int, ...]]
    labels: Sequence[str]
    of_track: Int
    spans: Int

    @cached_property
    def of_span(self) -> Int:
        """The row of every span."""
        return np.repeat(self.of_track, self.spans)


@dataclass(frozen=True)
class Strips:
    """Time per row and bin. `time` is [row, region, bin]: the ns that warps spent with that region innermost.

    It may have fewer rows than `rows`: the first of them.
    """

    rows: TimelineRows
    regions: Sequence[str]
    begin: int
    end: int
    time: npt.NDArray[np.float64]

    @property
    def bins(self) -> int:
        return int(self.time.shape[2])

    @property
    def bin_ns(self) -> float:
        return (self.end - self.begin) / self.bins

    @cached_property
    def dominant(self) -> Int:
        """The region with the most time in each bin as [row, bin], -1 where there is none."""
        if not self.time.size:
            return np.full((self.time.shape[0], self.bins), -1, np.int64)
        return np.where(self.time.max(axis=1) > 0, self.time.argmax(axis=1), -1)

    @property
    def warps(self) -> npt.NDArray[np.float64]:
        """The mean number of warps inside any region as [row, bin]."""
        return np.asarray(self.time.sum(axis=1) / self.bin_ns)


def innermost(trace: Trace) -> Segments:
    """Find which span was innermost at each time of each track. Empty spans, instants and values take no time."""
    begin, duration, parent = trace.numpy("start_ns"), trace.numpy("dur_ns"), _live_parents(trace)
    at = np.flatnonzero(trace.of_kind("span") & (duration > 0))
    end = begin + duration
    overlapping = np.zeros(int(trace.numpy("track").max(initial=-1)) + 1, bool)
    overlapping[_overlapping_tracks(trace, at, begin, end, parent)] = True
    nested = at[~overlapping[trace.numpy("track")[at]]]
    parts = [_nested_segments(nested, begin, end, parent)]
    rest = at[overlapping[trace.numpy("track")[at]]]
    for rows in np.split(rest, np.flatnonzero(np.diff(trace.numpy("track")[rest])) + 1):
        parts.append(_swept_segments(rows, begin, end))
    joined = [np.concatenate([getattr(part, name) for part in parts]) for name in ("row", "begin", "end")]
    keep = joined[2] > joined[1]
    return Segments(*(values[keep] for values in joined))


def _live_parents(trace: Trace) -> Int:
    """The nearest ancestor of each row that takes time."""
    parent = trace.numpy("parent").astype(np.int64)
    takes = trace.of_kind("span") & (trace.numpy("dur_ns") > 0)
    while True:
        skip = (parent >= 0) & ~takes[parent]
        if not skip.any():
            return parent
        parent = np.where(skip, parent[parent], parent)


def _overlapping_tracks(trace: Trace, at: Int, begin: Int, end: Int, parent: Int) -> Int:
    """Tracks with a span that outlives its parent or overlaps a sibling, such as asynchronous work."""
    track = trace.numpy("track")
    inner = at[parent[at] >= 0]
    outlives = inner[end[inner] > end[parent[inner]]]
    order = at[np.argsort(parent[at], kind="stable")]
    same = (parent[order[1:]] == parent[order[:-1]]) & (track[order[1:]] == track[order[:-1]])
    overlaps = order[1:][same & (begin[order[1:]] < end[order[:-1]])]
    return np.unique(track[np.concatenate((outlives, overlaps))]).astype(np.int64)


def _nested_segments(at: Int, begin: Int, end: Int, parent: Int) -> Segments:
    """A span is innermost from its begin to its first child's, and from each child's end to the next child's begin."""
    own_end = end[at].copy()
    if len(at) > 1:
        has_child = parent[at[1:]] == at[:-1]
        own_end[:-1][has_child] = begin[at[1:]][has_child]
    child = at[parent[at] >= 0]
    child = child[np.argsort(parent[child], kind="stable")]
    outer = parent[child]
    until = end[outer].copy()
    if len(child) > 1:
        sibling = outer[1:] == outer[:-1]
        until[:-1][sibling] = begin[child[1:]][sibling]
    return Segments(
        np.concatenate((at, outer)), np.concatenate((begin[at], end[child])), np.concatenate((own_end, until))
    )


def _swept_segments(rows: Int, begin: Int, end: Int) -> Segments:
    """Segments of one track whose spans overlap: at any time, the span that began last is the innermost."""
    if not len(rows):
        return Segments(rows, rows, rows)
    moments = np.unique(np.concatenate((begin[rows], end[rows]))).tolist()
    out: list[tuple[int, int, int]] = []
    begun: list[int] = []
    following, begins, ends = 0, begin[rows].tolist(), end[rows].tolist()
    for now, then in pairwise(moments):
        while following < len(begins) and begins[following] <= now:
            begun.append(following)
            following += 1
        # A span that ended under others is dropped when they are gone.
        while begun and ends[begun[-1]] <= now:
            begun.pop()
        if begun:
            out.append((int(rows[begun[-1]]), now, then))
    made = np.array(out, np.int64).reshape(-1, 3)
    return Segments(made[:, 0], made[:, 1], made[:, 2])


def rows_of(trace: Trace, by: str = "sm") -> TimelineRows:
    """The ordered rows of a timeline by sm, block, warp or warp_index."""
    check_name(f"no rows by {by!r}", by, ROWS)
    tracks = trace.runs("track")
    columns = [np.asarray(trace.at(name, tracks.starts), np.int64) for name in ROWS[by]]
    code = np.zeros(len(tracks.starts), np.int64)
    for column in columns:
        code = code * (int(column.max(initial=0)) + 1) + column
    _, first, of_track = np.unique(code, return_index=True, return_inverse=True)
    keys = [tuple(int(column[at]) for column in columns) for at in first.tolist()]
    return TimelineRows(by, keys, _labels(by, keys), of_track.reshape(-1), tracks.counts)


def _labels(by: str, keys: list[tuple[int, ...]]) -> list[str]:
    """`SM 4`, with rank, device or launch in front only where they differ."""
    names = ROWS[by]
    always = {"sm", "block", "warp"} & set(names)
    shown = [at for at, name in enumerate(names) if name in always or len({key[at] for key in keys}) > 1]
    return [" ".join(f"{'SM' if names[at] == 'sm' else names[at]} {key[at]}" for at in shown) for key in keys]


def strips(
    trace: Trace,
    by: str = "sm",
    bins: int = 240,
    time: tuple[int, int] | None = None,
    segments: Segments | None = None,
    most: int | None = None,
) -> Strips:
    """Compute the exact time per row, region and bin, over the whole trace or the interval `time`.

    `segments` are the innermost spans if they are known, `most` is the number of rows to compute, None for all.
    """
    if bins < 1:
        raise UsageError(f"bins={bins}: must be at least 1")
    rows = rows_of(trace, by)
    regions = trace.regions
    begin, end = time if time is not None else extent(trace)
    end = max(end, begin + 1)
    shape = (len(rows.labels) if most is None else min(len(rows.labels), most), len(regions), bins)
    library = native.load()
    if segments is None and library is not None:
        walked = _walked(trace, library, rows, (begin, end), shape)
        if walked is not None:
            return Strips(rows, regions, begin, end, walked)
    parts = segments or innermost(trace)
    low, high = np.clip(parts.begin, begin, end), np.clip(parts.end, begin, end)
    inside = (high > low) & (rows.of_span[parts.row] < shape[0])
    low, high, row = low[inside], high[inside], parts.row[inside]
    key = rows.of_span[row] * len(regions) + trace.codes("region")[0][row]
    return Strips(rows, regions, begin, end, _binned(key, low - begin, high - begin, end - begin, shape))


def _walked(
    trace: Trace, library: ctypes.CDLL, rows: TimelineRows, time: tuple[int, int], shape: tuple[int, int, int]
) -> npt.NDArray[np.float64] | None:
    """The time of the first rows by `wl_strips` of native/strips.c, block by block; None if a clock stepped back."""
    found = np.zeros(shape)
    strip = (ctypes.c_int64 * 5)(shape[1], shape[2], *time, native.address(found))
    first, is_span = trace.runs("track").starts, trace.of_kind("span")
    line = np.where(rows.of_track < shape[0], rows.of_track, -1).astype(np.int64)
    room = np.empty(int(rows.spans.max(initial=0)), np.int64)
    for begin, end, columns in trace.blocks("start_ns", "dur_ns", "region"):
        tracks = slice(*np.searchsorted(first, (begin, end)))
        starts = np.append(first[tracks], end) - begin
        arrays = [np.ascontiguousarray(one) for one in (starts, line[tracks], *columns, is_span[begin:end])]
        block = (ctypes.c_int64 * (1 + len(arrays)))(len(starts) - 1, *map(native.address, arrays))
        if library.wl_strips(block, strip, native.pointer(room)):
            return None
    return found


def _binned(key: Int, low: Int, high: Int, length: int, shape: tuple[int, int, int]) -> npt.NDArray[np.float64]:
    """Sum [low, high) per key and bin: the first and last bin partly, those between in full."""
    lines, bins = shape[0] * shape[1], shape[2]
    width = length / bins
    first = np.minimum((low / width).astype(np.int64), bins - 1)
    last = np.minimum((high / width).astype(np.int64), bins - 1)
    one = first == last
    base = key * bins
    total = np.bincount(base + first, np.where(one, high - low, (first + 1) * width - low), lines * bins)
    total += np.bincount((base + last)[~one], (high - last * width)[~one], lines * bins)
    long = last - first > 1
    steps = np.bincount(key[long] * (bins + 1) + first[long] + 1, minlength=lines * (bins + 1)).astype(np.int64)
    steps -= np.bincount(key[long] * (bins + 1) + last[long], minlength=lines * (bins + 1)).astype(np.int64)
    full_bins = np.cumsum(steps.reshape(lines, bins + 1), axis=1)[:, :bins]
    return np.asarray((total.reshape(lines, bins) + full_bins * width).reshape(shape))


def extent(trace: Trace) -> tuple[int, int]:
    """The first begin and the last end, in ns."""
    if not len(trace):
        return 0, 1
    known = trace.derived.get(Lifetimes)
    if isinstance(known, Lifetimes):
        return int(known.begin_ns.min()), int(known.finish_ns.max())
    blocks = trace.blocks("start_ns", "dur_ns")
    ends = [(int(start.min()), int((start + duration).max())) for _, _, (start, duration) in blocks]
    return min(begin for begin, _ in ends), max(end for _, end in ends)


def lanes(trace: Trace) -> npt.NDArray[np.int32]:
    """The line of each span within its track, outermost first, such that no two spans on a line overlap."""
    lane = trace.numpy("depth").astype(np.int32)
    begin, duration, track = trace.numpy("start_ns"), trace.numpy("dur_ns"), trace.numpy("track")
    end, parent = begin + duration, trace.numpy("parent")
    at = np.flatnonzero(trace.of_kind("span"))
    order = at[np.lexsort((at, lane[at], track[at]))]
    same = (track[order[1:]] == track[order[:-1]]) & (lane[order[1:]] == lane[order[:-1]])
    crowded = np.unique(track[order[1:][same & (begin[order[1:]] < end[order[:-1]])]])
    for number in crowded.tolist():
        lines = _Lines()
        for row in np.flatnonzero(track == number).tolist():
            least = int(lane[parent[row]]) + 1 if parent[row] >= 0 else 0
            lane[row] = lines.place(least, int(begin[row]), int(end[row]))
    return lane


class _Lines:
    """The lines of one track: which are free, and until when the others are taken."""

    def __init__(self) -> None:
        self._ends: list[int] = []
        self._free: list[int] = []
        """Lines that were free when the newest span was placed, in ascending order."""
        self._taken: list[tuple[int, int]] = []
        """A heap of ends and lines."""

    def place(self, least: int, begin: int, end: int) -> int:
        """Put a span on the first line from `least` on that is free at its begin."""
        while self._taken and self._taken[0][0] <= begin:
            insort(self._free, heappop(self._taken)[1])
        at = bisect_left(self._free, least)
        while at < len(self._free) and self._ends[self._free[at]] > begin:  # begins that are not in order
            at += 1
        if at == len(self._free):
            fresh = range(len(self._ends), max(least, len(self._ends)) + 1)
            self._free.extend(fresh)
            self._ends.extend(0 for _ in fresh)
            at = len(self._free) - 1
        line = self._free[at]
        if end > begin:
            del self._free[at]
            self._ends[line] = end
            heappush(self._taken, (end, line))
        return line


@dataclass(frozen=True)
class ThinnedTrace:
    """Part of a trace: `kept` of its `blocks` blocks, with all their spans."""

    trace: Trace
    kept: int
    blocks: int


def thinned(trace: Trace, most: int) -> ThinnedTrace:
    """Keep whole blocks up to `most` rows: every n-th block of each SM, and only some SMs if necessary.

    Every n-th block of the grid would show only some SMs, since blocks are assigned to SMs in turn.
    """
    lives = Lifetimes.of(trace)
    rows = np.bincount(lives.block, weights=lives.counts, minlength=len(lives.blocks))
    if not most or len(trace) <= most:
        return ThinnedTrace(trace, len(rows), len(rows))
    rank = np.array([launch.rank for launch in lives.launches], np.int64)[lives.blocks.launch]
    _, _, place = unique_rows(rank, lives.blocks.sm)
    order = np.lexsort((lives.blocks.begin_ns, place))
    first = np.append(True, place[order][1:] != place[order][:-1])
    turn = np.empty(len(rows), np.int64)
    turn[order] = np.arange(len(rows)) - np.repeat(
        np.flatnonzero(first), np.diff(np.append(np.flatnonzero(first), len(rows)))
    )
    for every in range(2, int(turn.max()) + 2):
        keep = turn % every == 0
        if rows[keep].sum() <= most:
            break
    else:
        alone = turn == 0
        every = 1
        while rows[alone & (place % every == 0)].sum() > most and every <= int(place.max()):
            every += 1
        keep = alone & (place % every == 0)
    tracks = trace.runs("track").values[keep[lives.block]]
    return ThinnedTrace(trace.select(track=tracks.tolist()), int(keep.sum()), len(rows))
