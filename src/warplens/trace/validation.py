"""What the columns of a trace must hold, and the check of each when it is first read from a file.

One column alone is checked for nulls, names, codes and ranges. What several columns must hold together is checked when
the last of them is read, so a column that no analysis asks for costs nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.errors import CaptureError
from warplens.record.aggregate_rows import BUCKETS, adds_up
from warplens.record.layout import LIFETIME_BITS, MAX_BLOCK, MAX_SM, MAX_WARPS
from warplens.trace.arrays import run_starts, to_numpy
from warplens.trace.barrier_rows import NO_RECORD, is_barrier_word
from warplens.trace.schema import KINDS, Meta

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


class Invalid(Exception):
    """A value that a column may not hold: the column, the row or None, and the problem."""

    def __init__(self, column: str, row: int | None, problem: str) -> None:
        super().__init__(column, row, problem)
        self.column, self.row, self.problem = column, row, problem


class ColumnChecks:
    """The checks of one file's columns. `add` takes columns as they are read, and raises on the first problem."""

    def __init__(self, path: Path, rows: int, meta: Meta) -> None:
        self._path, self._rows, self._meta = path, rows, meta
        self._read: dict[str, Array] = {}

    def add(self, columns: Mapping[str, pa.Array]) -> None:
        """Check columns that were just read, alone and together with those that were read before."""
        try:
            for name, array in columns.items():
                self._read[name] = self._alone(name, array)
            for names, check in _RELATIONS:
                if set(names) <= self._read.keys() and not columns.keys().isdisjoint(names):
                    check(self._meta, *(self._read[name] for name in names))
        except Invalid as error:
            where = f"column {error.column}" + ("" if error.row is None else f", row {error.row}")
            raise CaptureError(self._path, where, error.problem, REMEDY) from None

    def _alone(self, name: str, array: pa.Array) -> Array:
        """The numbers of a column, its codes, or its indices of KINDS, once nulls, names and ranges were checked."""
        if len(array) != self._rows:
            raise Invalid(name, None, f"holds {len(array):,} rows, the file {self._rows:,}")
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
    return np.array([KINDS.index(one) for one in names], np.int8)[codes] if name == "kind" and names else codes


def _list(name: str, array: pa.ListArray) -> Array:
    """Each row's list as an array."""
    if array.flatten().null_count:
        raise Invalid(name, None, "holds a list with no value in it")
    found = np.empty(len(array), object)
    found[:] = np.split(to_numpy(array.flatten()), to_numpy(array.offsets)[1:-1] - array.offsets[0].as_py())
    return found


def _within(name: str, values: Array, low: int, high: int, problem: str = "holds {}") -> None:
    if values.min() < low or values.max() > high:
        row = _first((values < low) | (values > high))
        expected = f"at least {low}" if values[row] < low else f"at most {high}"
        raise Invalid(name, row, f"{problem.format(values[row])}, expected {expected}")


def _first(mask: Array) -> int:
    return int(np.flatnonzero(mask)[0])


def _total(name: str) -> Callable[[Meta, Array], None]:
    def check(_: Meta, durations: Array) -> None:
        if durations.sum(dtype=np.float64) > _LATEST:
            raise Invalid(name, int(durations.argmax()), "its durations add up to more than 64 bits hold")

    return check


def _parents_precede(_: Meta, parent: Array) -> None:
    late = parent >= np.arange(len(parent), dtype=parent.dtype)
    if late.any():
        row = _first(late)
        raise Invalid("parent", row, f"holds {parent[row]}, expected an earlier row, or -1 for none")


def _tracks_in_order(_: Meta, track: Array) -> None:
    back = track[1:] < track[:-1]
    if back.any():
        row = _first(back) + 1
        raise Invalid("track", row, f"holds {track[row]} after {track[row - 1]}: the rows are not ordered by track")


def _parents_in_track(_: Meta, parent: Array, track: Array) -> None:
    child = np.flatnonzero(parent >= 0)
    wrong = track[parent[child]] != track[child]
    if wrong.any():
        row = int(child[_first(wrong)])
        raise Invalid("parent", row, f"holds {parent[row]}, a row of another track")


def _parents_are_spans(_: Meta, parent: Array, kind: Array) -> None:
    child = np.flatnonzero(parent >= 0)
    wrong = kind[parent[child]] != KINDS.index("span")
    if wrong.any():
        row = int(child[_first(wrong)])
        raise Invalid("parent", row, f"holds {parent[row]}, a row of kind {KINDS[kind[parent[row]]]}")


def _parents_less_deep(meta: Meta, parent: Array, depth: Array) -> None:
    """The depth counts the spans that enclose a row. Where regions overlap, as the trace then says, a parent may have
    begun inside one that ended before the row. Depths end at the largest that the column holds."""
    child = np.flatnonzero(parent >= 0)
    outer = 0 if meta.losses.mismatched_ends else depth[parent[child]]
    wrong = (outer >= depth[child]) & (depth[child] < _INT16)
    if wrong.any():
        row = int(child[_first(wrong)])
        raise Invalid("depth", row, f"holds {depth[row]}, and its parent {depth[parent[row]]}")


def _arrivals_in_file(_: Meta, released_by: Array) -> None:
    wrong = released_by >= len(released_by)
    if wrong.any():
        row = _first(wrong)
        raise Invalid("released_by", row, f"holds {released_by[row]}, and the file has {len(released_by):,} rows")


def _barrier_rows(_: Meta, released_by: Array, value: Array) -> None:
    records = np.flatnonzero(released_by != NO_RECORD)
    wrong = ~is_barrier_word(value[records])
    if wrong.any():
        raise Invalid("released_by", int(records[_first(wrong)]), "its row holds no barrier word")
    wait = np.flatnonzero(released_by >= 0)
    wrong = released_by[released_by[wait]] == NO_RECORD
    if wrong.any():
        row = int(wait[_first(wrong)])
        raise Invalid("released_by", row, f"holds {released_by[row]}, a row that is no barrier record")


def _edges_in_launch(_: Meta, released_by: Array, rank: Array, launch: Array) -> None:
    wait = np.flatnonzero(released_by >= 0)
    arrival = released_by[wait]
    wrong = (rank[arrival] != rank[wait]) | (launch[arrival] != launch[wait])
    if wrong.any():
        row = int(wait[_first(wrong)])
        raise Invalid("released_by", row, f"holds {released_by[row]}, a row of another launch")


def _begins_in_order(name: str) -> Callable[[Meta, Array, Array], None]:
    def check(meta: Meta, track: Array, start: Array) -> None:
        if meta.losses.clock_backward:
            return  # the records themselves are out of order, and the trace says so
        back = (start[1:] < start[:-1]) & (track[1:] == track[:-1])
        if back.any():
            row = _first(back) + 1
            raise Invalid(
                name, row, f"holds {start[row]} after {start[row - 1]}: the rows of its track are not ordered by begin"
            )

    return check


def _constant(name: str) -> Callable[[Meta, Array, Array], None]:
    def check(_: Meta, track: Array, values: Array) -> None:
        changes = (values[1:] != values[:-1]) & (track[1:] == track[:-1])
        if changes.any():
            row = _first(changes) + 1
            raise Invalid(name, row, f"holds {values[row]} after {values[row - 1]} within one track")

    return check


def _launches_known(meta: Meta, rank: Array, launch: Array) -> None:
    known = {(info.rank, info.launch) for info in meta.launches}
    for row in _launch_runs(rank, launch):
        if (int(rank[row]), int(launch[row])) not in known:
            problem = f"holds {launch[row]}, and the file lists no launch {launch[row]} of rank {rank[row]}"
            raise Invalid("launch", int(row), problem)


def _below(name: str, size: str) -> Callable[[Meta, Array, Array, Array], None]:
    def check(meta: Meta, rank: Array, launch: Array, values: Array) -> None:
        heads = _launch_runs(rank, launch)
        if not len(heads):
            return
        limits = {(info.rank, info.launch): _count(info.grid if size == "grid" else info.block, size)
                  for info in meta.launches}  # fmt: skip
        limit = np.array([limits[int(rank[row]), int(launch[row])] for row in heads])
        wrong = np.maximum.reduceat(values, heads) >= limit
        if wrong.any():
            at = _first(wrong)
            end = heads[at + 1] if at + 1 < len(heads) else len(values)
            row = int(heads[at]) + _first(values[heads[at] : end] >= limit[at])
            raise Invalid(name, row, f"holds {values[row]}, and its launch has {limit[at]:,} of them")

    return check


def _launch_runs(rank: Array, launch: Array) -> Array:
    return run_starts(rank.astype(np.int64) << 32 | launch)


def _count(size: tuple[int, int, int], what: str) -> int:
    threads = size[0] * size[1] * size[2]
    return threads if what == "grid" else -(-threads // 32)


def _durations_in_order(_: Meta, count: Array, total: Array, least: Array, most: Array, kind: Array) -> None:
    wrong = ~adds_up(count, total, least, most)
    if wrong.any():
        row = _first(wrong)
        executions = f"{count[row]} executions of {least[row]} to {most[row]} cycles"
        raise Invalid("dur_cycles", row, f"holds {total[row]}, which {executions} do not add up to")


def _buckets_count(_: Meta, count: Array, buckets: Array, counts: Array) -> None:
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
