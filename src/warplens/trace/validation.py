"""What the columns of a trace must hold, and the check of each when it is first read from a file.

One column alone is checked for nulls, names, codes and ranges. What several columns must hold together is checked when
the last of them is read, so a column that no analysis asks for costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.errors import CaptureError
from warplens.record.aggregate_rows import BUCKETS, adds_up
from warplens.record.layout import LIFETIME_BITS, MAX_BLOCK, MAX_SM, MAX_WARPS
from warplens.trace.arrays import dictionary_array, to_numpy
from warplens.trace.barrier_rows import NO_RECORD, is_barrier_word
from warplens.trace.runs import Runs
from warplens.trace.schema import KINDS, Meta, kind_indices

Array = npt.NDArray[Any]
REMEDY = "copy it again or profile again"

_LONGEST = 1 << LIFETIME_BITS
_LATEST = 1 << 62
"""The latest time: adding a duration to it does not overflow."""
_INT16, _INT32 = (1 << 15) - 1, (1 << 31) - 1

RANGES: dict[str, tuple[int, int]] = {
    "rank": (0, _INT16),
    "device": (0, _INT16),
    "launch": (0, _INT32),
    "sm": (0, MAX_SM),
    "block": (0, MAX_BLOCK - 1),
    "warp": (0, MAX_WARPS - 1),
    "depth": (0, _INT16),
    "parent": (-1, _INT32),
    "start_ns": (0, _LATEST),
    "dur_ns": (0, _LONGEST),
    "start_cycle": (-_LATEST, _LATEST),
    "dur_cycles": (0, _LONGEST),
    "track": (0, _INT32),
    "lane": (0, 31),
    "count": (1, _LONGEST),
    "min_cycles": (0, _LONGEST),
    "max_cycles": (0, _LONGEST),
    "released_by": (-3, _INT32),
}
"""The least and the greatest value of each column of whole numbers."""

ALONG_TRACKS = ("rank", "device", "launch", "kernel", "sm", "block", "warp", "lane")
"""The columns that are constant along a track."""
RUN_COLUMNS = ("track", *ALONG_TRACKS)
"""The columns that are checked, and can be read, as runs of equal values."""
_AT_ONCE = 1 << 16
"""Rows that are checked together."""


class Invalid(Exception):
    """A value that a column may not hold: the column, the row or None, and the problem."""

    def __init__(self, column: str, row: int | None, problem: str) -> None:
        super().__init__(column, row, problem)
        self.column, self.row, self.problem = column, row, problem


class ColumnChecks:
    """The checks of one file's columns. `add` takes columns as they are read, and raises on the first problem.

    Columns that are constant along a track are kept as runs, others as they are. A column with a problem is not kept,
    so that later checks rely on right columns only.
    """

    def __init__(self, path: Path, rows: int, meta: Meta) -> None:
        self._path, self._rows, self._meta = path, rows, meta
        self._read: dict[str, Any] = {}
        self._sums: dict[str, float] = {}
        self._lock = Lock()  # two threads may read columns of one file that are to be checked together

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        """Check whole columns that were just read, alone and together with those that were read before."""
        with self._named():
            new: dict[str, Any] = {}
            for name, array in columns.items():
                if len(array) != self._rows:
                    raise Invalid(name, None, f"holds {len(array):,} rows, the file {self._rows:,}")
                values = _alone(name, array)
                new[name] = Runs.of(values) if name in RUN_COLUMNS else values
            self._keep(new)

    def add_runs(self, name: str, runs: Runs, names: Sequence[str] | None) -> None:
        """Check a column that was read as runs; `names` are those that its numbers stand for."""
        with self._named():
            if runs.rows != self._rows:
                raise Invalid(name, None, f"holds {runs.rows:,} rows, the file {self._rows:,}")
            if names is not None:
                _alone(name, dictionary_array(runs.values, names))
            elif len(runs.values):
                _within(name, runs.values, *RANGES[name], rows=runs.starts)
            self._keep({name: runs})

    def add_block(self, columns: Mapping[str, pa.Array], first: int) -> None:
        """Check some rows of columns, from `first` on, which holds whole tracks; they are not kept."""
        with self._named(first):
            block = {name: _alone(name, array) for name, array in columns.items()}
            runs = {name: known for name, known in self._read.items() if name in RUN_COLUMNS}
            self._relate(columns.keys(), runs | block, first)
            for name in columns.keys() & {"dur_ns", "dur_cycles"}:
                self._sums[name] = self._sums.get(name, 0.0) + float(block[name].sum(dtype=np.float64))
                _check_total(name, self._sums[name], 0)

    def _keep(self, new: Mapping[str, Any]) -> None:
        with self._lock:
            known = {**self._read, **new}
            self._relate(new.keys(), known, 0)
            self._read = known

    def _relate(self, new: Collection[str], known: Mapping[str, Any], first: int) -> None:
        """What the new columns hold together with others, of which rows are known from `first` on."""
        context = _Context(self._meta, self._rows, first)
        for names, check in _RELATIONS:
            if known.keys() >= set(names) and not set(new).isdisjoint(names):
                check(context, *(known[name] for name in names))

    @contextmanager
    def _named(self, first: int = 0) -> Iterator[None]:
        try:
            yield
        except Invalid as error:
            where = f"column {error.column}" + ("" if error.row is None else f", row {error.row + first}")
            raise CaptureError(self._path, where, error.problem, REMEDY) from None


@dataclass(frozen=True)
class _Context:
    """What checks know besides columns: the document, the rows of the file, and the row that the columns begin with."""

    meta: Meta
    rows: int
    first: int


def _alone(name: str, array: pa.Array) -> Array:
    """The numbers of a column, its codes, or its indices of KINDS, once nulls, names and ranges were checked."""
    if pa.types.is_dictionary(array.type):
        return _codes(name, array)
    if array.null_count and name != "value":
        raise Invalid(name, _first(~np.asarray(to_numpy(array.is_valid()))), "holds no value")
    if pa.types.is_list(array.type):
        return _list(name, array)
    values = to_numpy(array)
    if name in RANGES and len(values):
        _within(name, values, *RANGES[name])
    return values


def _codes(name: str, array: pa.Array) -> Array:
    if array.indices.null_count:
        raise Invalid(name, _first(~np.asarray(to_numpy(array.indices.is_valid()))), "holds no name")
    try:
        array.dictionary.validate(full=True)
        names = array.dictionary.to_pylist()
    except (pa.ArrowException, UnicodeDecodeError):
        raise Invalid(name, None, "its names are not valid UTF-8") from None
    codes = to_numpy(array.indices)
    if len(codes):
        _within(name, codes, 0, len(names) - 1, "refers to name {} of " + f"{len(names):,}")
    if None in names or len(set(names)) != len(names):
        raise Invalid(name, None, "its list of names holds a name twice, or no name")
    if name == "kind" and not set(names) <= set(KINDS):
        wrong = next(one for one in names if one not in KINDS)
        raise Invalid(name, None, f"holds {wrong[:40]!r}; known are {', '.join(KINDS)}")
    return kind_indices(codes, names) if name == "kind" else codes


def _list(name: str, array: pa.ListArray) -> Array:
    """Each row's list as an array."""
    if array.flatten().null_count:
        raise Invalid(name, None, "holds a list with no value in it")
    found = np.empty(len(array), object)
    found[:] = np.split(to_numpy(array.flatten()), to_numpy(array.offsets)[1:-1] - array.offsets[0].as_py())
    return found


def _within(
    name: str, values: Array, low: int, high: int, problem: str = "holds {}", rows: Array | None = None
) -> None:
    """Check a range; `rows` are the rows of the values where they are not one after the other."""
    if values.min() < low or values.max() > high:
        at = _first((values < low) | (values > high))
        expected = f"at least {low}" if values[at] < low else f"at most {high}"
        row = at if rows is None else int(rows[at])
        raise Invalid(name, row, f"{problem.format(values[at])}, expected {expected}")


def _first(mask: Array) -> int:
    return int(np.flatnonzero(mask)[0])


def _total(name: str) -> Callable[[_Context, Array], None]:
    def check(_: _Context, durations: Array) -> None:
        _check_total(name, float(durations.sum(dtype=np.float64)), int(durations.argmax()) if len(durations) else 0)

    return check


def _check_total(name: str, total: float, row: int) -> None:
    if total > _LATEST:
        raise Invalid(name, row, "its durations add up to more than 64 bits hold")


def _pieces(rows: int) -> Iterator[slice]:
    """Rows that are checked together, so that what a check computes stays in a processor's cache."""
    return (slice(first, min(first + _AT_ONCE, rows)) for first in range(0, rows, _AT_ONCE))


def _parents_precede(context: _Context, parent: Array) -> None:
    for piece in _pieces(len(parent)):
        late = parent[piece] - context.first >= np.arange(piece.start, piece.stop, dtype=parent.dtype)
        if late.any():
            row = piece.start + _first(late)
            raise Invalid("parent", row, f"holds {parent[row]}, expected an earlier row, or -1 for none")


def _tracks_in_order(_: _Context, track: Runs) -> None:
    back = track.values[1:] < track.values[:-1]
    if back.any():
        at = _first(back) + 1
        here, before = track.values[at], track.values[at - 1]
        problem = f"holds {here} after {before}: the rows are not ordered by track"
        raise Invalid("track", int(track.starts[at]), problem)


def _parents_in_track(context: _Context, parent: Array, track: Runs) -> None:
    for piece in _pieces(len(parent)):
        rows = np.arange(piece.start, piece.stop) + context.first
        at = slice(*np.searchsorted(track.starts, (rows[0], rows[-1] + 1), side="right") - (1, 0))
        starts = track.starts[at]
        counts = np.diff(np.clip(np.append(starts, rows[-1] + 1), rows[0], rows[-1] + 1))
        # The parent of a row is an earlier row, so it is in another track if it is before the row's own track.
        wrong = (parent[piece] >= 0) & (parent[piece] < np.repeat(starts, counts))
        if wrong.any():
            row = piece.start + _first(wrong)
            raise Invalid("parent", row, f"holds {parent[row]}, a row of another track")


def _with_parents(context: _Context, parent: Array) -> Iterator[tuple[Array, Array]]:
    """Rows that have a parent among the columns, and those of their parents."""
    for piece in _pieces(len(parent)):
        child = piece.start + np.flatnonzero(parent[piece] >= context.first)
        yield child, parent[child] - context.first


def _parents_are_spans(context: _Context, parent: Array, kind: Array) -> None:
    for child, above in _with_parents(context, parent):
        wrong = kind[above] != KINDS.index("span")
        if wrong.any():
            at = _first(wrong)
            row = int(child[at])
            raise Invalid("parent", row, f"holds {parent[row]}, a row of kind {KINDS[kind[above[at]]]}")


def _parents_less_deep(context: _Context, parent: Array, depth: Array) -> None:
    """The depth counts the spans that enclose a row. Where regions overlap, as the trace then says, a parent may have
    begun inside one that ended before the row. Depths end at the largest that the column holds."""
    overlapping = bool(context.meta.losses.mismatched_ends)
    for child, above in _with_parents(context, parent):
        outer = 0 if overlapping else depth[above]
        wrong = (outer >= depth[child]) & (depth[child] < _INT16)
        if wrong.any():
            at = _first(wrong)
            raise Invalid("depth", int(child[at]), f"holds {depth[child[at]]}, and its parent {depth[above[at]]}")


def _arrivals_in_file(context: _Context, released_by: Array) -> None:
    if len(released_by) and released_by.max() >= context.rows:
        row = _first(released_by >= context.rows)
        raise Invalid("released_by", row, f"holds {released_by[row]}, and the file has {context.rows:,} rows")


def _barrier_rows(_: _Context, released_by: Array, value: Array) -> None:
    records = np.flatnonzero(released_by != NO_RECORD)
    wrong = ~is_barrier_word(value[records])
    if wrong.any():
        raise Invalid("released_by", int(records[_first(wrong)]), "its row holds no barrier word")
    wait = np.flatnonzero(released_by >= 0)
    wrong = released_by[released_by[wait]] == NO_RECORD
    if wrong.any():
        row = int(wait[_first(wrong)])
        raise Invalid("released_by", row, f"holds {released_by[row]}, a row that is no barrier record")


def _edges_in_launch(_: _Context, released_by: Array, rank: Runs, launch: Runs) -> None:
    wait = np.flatnonzero(released_by >= 0)
    arrival = released_by[wait]
    wrong = (rank.at(arrival) != rank.at(wait)) | (launch.at(arrival) != launch.at(wait))
    if wrong.any():
        row = int(wait[_first(wrong)])
        raise Invalid("released_by", row, f"holds {released_by[row]}, a row of another launch")


def _begins_in_order(name: str) -> Callable[[_Context, Runs, Array], None]:
    def check(context: _Context, track: Runs, start: Array) -> None:
        if context.meta.losses.clock_backward:
            return  # the records themselves are out of order, and the trace says so
        for piece in _pieces(len(start)):
            near = start[max(piece.start - 1, 0) : piece.stop]
            back = max(piece.start, 1) + np.flatnonzero(near[1:] < near[:-1])
            wrong = back[track.starts[np.searchsorted(track.starts, back + context.first, "right") - 1]
                         != back + context.first] if len(back) else back  # fmt: skip
            if len(wrong):
                row = int(wrong[0])
                after = f"holds {start[row]} after {start[row - 1]}"
                raise Invalid(name, row, f"{after}: the rows of its track are not ordered by begin")

    return check


def _constant(name: str) -> Callable[[_Context, Runs, Runs], None]:
    def check(_: _Context, track: Runs, values: Runs) -> None:
        at = np.searchsorted(track.starts, values.starts, side="right") - 1
        changes = track.starts[at] != values.starts
        if changes.any():
            run = _first(changes)
            problem = f"holds {values.values[run]} after {values.values[run - 1]} within one track"
            raise Invalid(name, int(values.starts[run]), problem)

    return check


def _launches_known(context: _Context, rank: Runs, launch: Runs) -> None:
    known = {(info.rank, info.launch) for info in context.meta.launches}
    for row, key in _launch_runs(rank, launch):
        if key not in known:
            raise Invalid("launch", row, f"holds {key[1]}, and the file lists no launch {key[1]} of rank {key[0]}")


def _below(name: str, size: str) -> Callable[[_Context, Runs, Runs, Runs], None]:
    def check(context: _Context, rank: Runs, launch: Runs, values: Runs) -> None:
        limits = {(info.rank, info.launch): _count(info.grid if size == "grid" else info.block, size)
                  for info in context.meta.launches}  # fmt: skip
        for (row, key), (end, _) in pairwise([*_launch_runs(rank, launch), (values.rows, (0, 0))]):
            first, last = np.searchsorted(values.starts, (row, end - 1), side="right")
            here = values.values[first - 1 : last]
            if here.max() >= limits[key]:
                at = _first(here >= limits[key])
                problem = f"holds {here[at]}, and its launch has {limits[key]:,} of them"
                raise Invalid(name, max(int(values.starts[first - 1 + at]), row), problem)

    return check


def _launch_runs(rank: Runs, launch: Runs) -> Iterator[tuple[int, tuple[int, int]]]:
    """The first row of each run of rows of one launch, with the rank and the number of the launch."""
    rows = np.union1d(rank.starts, launch.starts)
    return zip(rows.tolist(), zip(rank.at(rows).tolist(), launch.at(rows).tolist(), strict=True), strict=True)


def _count(size: tuple[int, int, int], what: str) -> int:
    threads = size[0] * size[1] * size[2]
    return threads if what == "grid" else -(-threads // 32)


def _durations_in_order(_: _Context, count: Array, total: Array, least: Array, most: Array, kind: Array) -> None:
    wrong = ~adds_up(count, total, least, most)
    if wrong.any():
        row = _first(wrong)
        executions = f"{count[row]} executions of {least[row]} to {most[row]} cycles"
        raise Invalid("dur_cycles", row, f"holds {total[row]}, which {executions} do not add up to")


def _buckets_count(_: _Context, count: Array, buckets: Array, counts: Array) -> None:
    lengths, others = (np.array([len(one) for one in some], np.int64) for some in (buckets, counts))
    if (lengths != others).any():
        raise Invalid("bucket_counts", _first(lengths != others), "holds another number of values than `buckets`")
    numbers, amounts = (np.concatenate([np.zeros(0, np.int64), *some]) for some in (buckets, counts))
    row = np.repeat(np.arange(len(count)), lengths)
    back = (numbers[1:] <= numbers[:-1]) & (row[1:] == row[:-1])
    wrong = (numbers < 0) | (numbers >= BUCKETS) | (amounts < 1) | np.concatenate(([False], back))[: len(numbers)]
    if wrong.any():
        raise Invalid("buckets", int(row[_first(wrong)]), f"holds no ascending numbers of 0..{BUCKETS - 1} with counts")
    held = np.bincount(row, amounts, len(count))
    short = (held != count) & (lengths > 0)
    if short.any():
        at = _first(short)
        raise Invalid("bucket_counts", at, f"adds up to {held[at]:.0f}, and `count` is {count[at]}")


_RELATIONS: Sequence[tuple[tuple[str, ...], Callable[..., None]]] = (
    *(((name,), _total(name)) for name in ("dur_ns", "dur_cycles")),
    (("parent",), _parents_precede),
    (("track",), _tracks_in_order),
    (("parent", "track"), _parents_in_track),
    (("parent", "kind"), _parents_are_spans),
    (("parent", "depth"), _parents_less_deep),
    (("released_by",), _arrivals_in_file),
    (("released_by", "value"), _barrier_rows),
    (("released_by", "rank", "launch"), _edges_in_launch),
    *((("track", name), _begins_in_order(name)) for name in ("start_ns", "start_cycle")),
    *((("track", name), _constant(name)) for name in ALONG_TRACKS),
    (("count", "dur_cycles", "min_cycles", "max_cycles", "kind"), _durations_in_order),
    (("count", "buckets", "bucket_counts"), _buckets_count),
    (("rank", "launch"), _launches_known),
    (("rank", "launch", "block"), _below("block", "grid")),
    (("rank", "launch", "warp"), _below("warp", "block")),
)
"""What columns must hold together, in an order in which each check may rely on those before it."""
