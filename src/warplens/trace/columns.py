"""Sources of a trace's columns: decoded arrays, a table in memory, or a Parquet file read column by column."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from warplens.errors import CaptureError
from warplens.text import one_line
from warplens.trace import checksums
from warplens.trace.arrays import numpy_dtype, run_starts, to_arrow, to_numpy
from warplens.trace.barrier_rows import UNKNOWN_ARRIVAL
from warplens.trace.joined_column import JoinedColumn, JoinedNames, UnusualNames, combined
from warplens.trace.pass_progress import passed
from warplens.trace.row_groups import is_cut_between
from warplens.trace.runs import Runs
from warplens.trace.schema import ABSENT, AGGREGATE_COLUMNS, COLUMNS, KINDS, Meta
from warplens.trace.validation import REMEDY, ColumnChecks

Array = npt.NDArray[Any]
_TYPES = {**COLUMNS, **AGGREGATE_COLUMNS}
_FEW_ROWS = 1 << 14
"""To hand columns of so few rows to threads takes longer than to read them."""
_ROWS_AT_ONCE = 1 << 20
"""Rows of a column that are read together."""
_OUTSIDE = {"parent": -1, "released_by": UNKNOWN_ARRIVAL}
"""The columns that hold row numbers, and what stands for a row that was not read."""


class Columns(Protocol):
    """A table whose columns are computed or read on first use."""

    rows: int

    def column(self, name: str) -> pa.Array: ...


class TableColumns:
    """The columns of a pyarrow table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.rows = table.num_rows

    def column(self, name: str) -> pa.Array:
        if name in ABSENT and name not in self._table.column_names:
            return constant(name, ABSENT[name], self.rows)
        return combined(self._table.column(name))


class LazyColumns:
    """Columns that are computed by a function each, so that only the columns in use cost time."""

    def __init__(
        self,
        rows: int,
        makers: Mapping[str, Callable[[], pa.Array]],
        parts: Mapping[str, Callable[[int, int], pa.Array]],
        row_start: Array,
        of_tracks: Mapping[str, Callable[[], Array]],
    ) -> None:
        self.rows = rows
        self.parts = parts
        """For some columns: functions that make them from one row up to another only."""
        self.of_tracks = of_tracks
        """Columns that are constant along a track: what gives the value of each track."""
        self._makers, self._row_start = makers, row_start
        self._starts: tuple[Array, Array] | None = None
        """The first row of each track, as `runs` has given it, and the numbers of these tracks."""

    def column(self, name: str) -> pa.Array:
        return self._makers[name]()

    def at(self, name: str, rows: Array) -> Array:
        """The values of a column of `of_tracks` at some rows."""
        if self._starts is not None and rows is self._starts[0]:
            return np.asarray(self.of_tracks[name]()[self._starts[1]])
        return np.asarray(self.of_tracks[name]()[np.searchsorted(self._row_start, rows, side="right") - 1])

    def runs(self, name: str) -> Runs:
        """The runs of equal values of such a column."""
        used = np.flatnonzero(self._row_start[1:] != self._row_start[:-1])
        values = self.of_tracks[name]()
        values = (values if len(used) == len(values) else values[used]).astype(numpy_dtype(COLUMNS[name]))
        if name == "track":  # each differs from the one before
            starts = self._row_start[:-1][used]
            self._starts = starts, used
            return Runs(starts, values, self.rows)
        heads = run_starts(values)
        return Runs(self._row_start[used[heads]], values[heads], self.rows)


class TraceFile:
    """A Parquet file that stays open, so that a file which replaces it later never mixes with it.

    Python opens it, since Arrow refuses names that are not UTF-8.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = open(path, "rb", buffering=0)  # noqa: SIM115
        self.stamp = self._now()
        self.metadata, self._sums = checksums.verified(checksums.read_footer(self._file)[1])
        self._parquet: pq.ParquetFile | None = None
        self._lock = threading.Lock()

    @property
    def checked(self) -> bool:
        """Whether the file has checksums; those that older versions wrote have none."""
        return self._sums is not None

    def read(self, names: Sequence[str], groups: Sequence[int] | None = None) -> pa.Table:
        """Read some columns whose bytes have their checksums, of some row groups or of all."""
        if self._now() != self.stamp:
            raise CaptureError(self.path, "file", "was changed after it was loaded", "load it again")
        # A reader of Arrow serves one thread at a time, and parts of one trace share it; so does the file's position.
        with self._lock:
            for name in names:
                if self._sums is not None:
                    self._sums.check(self._file, name, groups)
            if self._parquet is None:
                # Where whole chunks have checksums, those of their pages add nothing.
                unchecked = self._sums is None
                self._parquet = pq.ParquetFile(self._file, metadata=self.metadata, page_checksum_verification=unchecked)
            threads = self.metadata.num_rows > _FEW_ROWS
            if groups is not None:
                return self._parquet.read_row_groups(list(groups), list(names), use_threads=threads)
            return self._parquet.read(list(names), use_threads=threads)

    def _now(self) -> tuple[int, int]:
        found = os.fstat(self._file.fileno())
        return found.st_size, found.st_mtime_ns


class ParquetColumns:
    """The columns of one Parquet file, or of some of its row groups; `fixed` columns are constants from the name of
    its folder."""

    def __init__(
        self, file: TraceFile, rows: int, fixed: Mapping[str, int], meta: Meta, groups: Sequence[int] | None = None
    ) -> None:
        self._file = file
        self._fixed = fixed
        self._groups = groups
        self._checks = ColumnChecks(file.path, rows, meta)
        self.rows = rows
        self._went_through: set[str] = set()
        """The columns of which all blocks were checked."""

    @property
    def checked(self) -> bool:
        """Whether the file has checksums."""
        return self._file.checked

    def column(self, name: str) -> pa.Array:
        return self.read([name])[name]

    def read(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """Read several columns in one pass over the file, and check them."""
        stored = [name for name in names if name not in self._fixed]
        # A constant column has as many rows as the file claims: read one that shows whether it has them.
        found = self._whole(stored or ["kind"])
        rows = len(next(iter(found.values())))
        for name in stored:
            if self._groups is not None and name in _OUTSIDE:
                found[name] = self._renumbered(found[name], _OUTSIDE[name])
        for name in set(names) - set(stored):
            if rows == self.rows:
                found[name] = constant(name, self._fixed[name], self.rows)
        self._checks.add(found)
        return found

    def _whole(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """Whole columns. Those of many row groups are put together batch by batch, so that each is in memory once."""
        batches = self._batches()
        if len(batches) > 1:
            joined = {name: JoinedColumn(_TYPES[name], self.rows) for name in names}
            for batch in batches:
                table = self._table(names, batch)
                for name in names:
                    joined[name].add(self._cast(table, name))
                passed(joined[names[0]].rows, self.rows)
            return {name: column.array() for name, column in joined.items()}
        table = self._table(names, self._groups)
        return {name: combined(self._cast(table, name)) for name in names}

    def runs(self, name: str) -> tuple[Runs, list[str]]:
        """A column that is constant along a track as runs, and the names that its values stand for, if any."""
        if name in self._fixed:
            value = to_numpy(constant(name, self._fixed[name], min(self.rows, 1)))
            return Runs(np.zeros(len(value), np.int64), value, self.rows), []
        names, is_names = JoinedNames(), pa.types.is_dictionary(_TYPES[name])
        try:
            runs = Runs.joined(names.codes(part) if is_names else to_numpy(part) for part in self._parts(name))
            self._checks.add_runs(name, runs, names.names if is_names else None)
        except UnusualNames:
            found = self.column(name)  # which finds the problem, if it is one
            runs, names = Runs.of(to_numpy(found.indices)), JoinedNames(found.dictionary.to_pylist())
        return runs, names.names

    def names(self, name: str) -> list[str]:
        """The names of a column in the order of their first use, without its rows."""
        names = JoinedNames()
        try:
            for part in self._parts(name):
                names.codes(part)
        except UnusualNames:
            return list(self.column(name).dictionary.to_pylist())  # which finds the problem, if it is one
        return names.names

    def _parts(self, name: str) -> Iterator[pa.Array]:
        """A column chunk by chunk."""
        for batch in self._batches():
            yield from self._cast(self._table([name], batch), name).chunks

    def blocks(self, names: Sequence[str]) -> Iterator[tuple[int, dict[str, Array]]]:
        """Some row groups at a time: the first row and some columns, which are checked and not kept.

        Names are codes of `names`, kinds indices of KINDS.
        """
        first = 0
        known = {name: JoinedNames(KINDS if name == "kind" else ()) for name in names}
        for batch in self._batches():
            table = self._table(names, batch)
            block = {name: combined(self._cast(table, name)) for name in names}
            del table
            new = [name for name in names if name not in self._went_through]
            self._checks.add_block({name: block[name] for name in new}, first)
            yield (
                first,
                {
                    name: known[name].codes(array) if pa.types.is_dictionary(array.type) else to_numpy(array)
                    for name, array in block.items()
                },
            )
            first += sum(self._file.metadata.row_group(group).num_rows for group in batch)
        self._went_through.update(names)

    @cached_property
    def has_blocks(self) -> bool:
        """Whether every row group holds whole tracks, as those of older files do not, and all of them are wanted."""
        metadata = self._file.metadata
        return self._groups is None and all(
            is_cut_between("track", metadata, group) for group in range(metadata.num_row_groups)
        )

    def _batches(self) -> list[list[int]]:
        """Row groups that are read together, which is faster than one by one."""
        groups = range(self._file.metadata.num_row_groups) if self._groups is None else self._groups
        batches: list[list[int]] = [[]]
        rows = 0
        for group in groups:
            more = self._file.metadata.row_group(group).num_rows
            if batches[-1] and rows + more > _ROWS_AT_ONCE:
                batches.append([])
                rows = 0
            batches[-1].append(group)
            rows += more
        return batches

    def _table(self, names: Sequence[str], groups: Sequence[int] | None) -> pa.Table:
        try:
            return self._file.read(names, groups)
        except checksums.Damaged as error:
            raise CaptureError(self._file.path, f"column {error.column}", str(error), REMEDY) from None
        except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
            problem = f"cannot be read ({_first_line(error)})"
            raise CaptureError(self._file.path, f"columns {', '.join(names)}", problem, REMEDY) from None

    def _renumbered(self, column: pa.Array, outside: int) -> pa.Array:
        """Row numbers of the file as row numbers of the row groups; `outside` for rows of other row groups."""
        groups = self._groups or ()
        sizes = np.array(
            [self._file.metadata.row_group(at).num_rows for at in range(self._file.metadata.num_row_groups)]
        )
        first, kept = (np.cumsum(sizes) - sizes)[list(groups)], sizes[list(groups)]
        row = to_numpy(column).astype(np.int64)
        at = np.maximum(np.searchsorted(first, row, side="right") - 1, 0)
        moved = np.where(row < (first + kept)[at], row - first[at] + (np.cumsum(kept) - kept)[at], outside)
        moved = np.where((row >= 0) & (row < first[0]), outside, moved)
        return to_arrow(np.where(row >= 0, moved, row).astype(np.int32))

    def _cast(self, table: pa.Table, name: str) -> pa.ChunkedArray:
        column = table.column(name)
        try:
            # The first cast of a process imports pyarrow.compute, which takes longer than reading a small trace.
            return _of_one_line(column if column.type == _TYPES[name] else column.cast(_TYPES[name]))
        except (pa.ArrowException, ValueError, OverflowError, MemoryError) as error:
            problem = f"is {str(column.type)[:60]}, expected {_TYPES[name]} ({_first_line(error)})"
            raise CaptureError(self._file.path, f"column {name}", problem, REMEDY) from None


def _of_one_line(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """A column of names without line breaks in them; any other column as it is."""
    if not pa.types.is_dictionary(column.type):
        return column
    return pa.chunked_array([_names_of_one_line(chunk) for chunk in column.chunks], column.type)


def _names_of_one_line(chunk: pa.DictionaryArray) -> pa.DictionaryArray:
    try:
        names = chunk.dictionary.to_pylist()
    except UnicodeDecodeError:
        return chunk  # the checks of the column say so
    safe = [name if name is None else one_line(name) for name in names]
    return chunk if safe == names else pa.DictionaryArray.from_arrays(chunk.indices, pa.array(safe, pa.string()))


def _first_line(error: BaseException) -> str:
    return (str(error) or type(error).__name__).splitlines()[0][:120]


def constant(name: str, value: int, rows: int) -> pa.Array:
    """A column with the same number in every row."""
    return to_arrow(np.full(rows, value, numpy_dtype(COLUMNS[name])))
