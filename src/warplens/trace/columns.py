"""Where a trace's columns come from: decoded arrays, a table in memory, or a Parquet file read a column at a time."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa
import pyarrow.parquet as pq

from warplens.trace.schema import COLUMNS


class Columns(Protocol):
    """A table whose columns are made or read when they are first asked for."""

    rows: int

    def column(self, name: str) -> pa.Array: ...


class TableColumns:
    """The columns of a pyarrow table."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table
        self.rows = table.num_rows

    def column(self, name: str) -> pa.Array:
        return combined(self._table.column(name))


class LazyColumns:
    """Columns made by a function each, so that a view that needs three pays for three."""

    def __init__(self, rows: int, makers: Mapping[str, Callable[[], pa.Array]]) -> None:
        self.rows = rows
        self._makers = makers

    def column(self, name: str) -> pa.Array:
        return self._makers[name]()


class ParquetColumns:
    """The columns of one Parquet file."""

    def __init__(self, path: str | os.PathLike[str], rows: int) -> None:
        self._path = path
        self.rows = rows

    def column(self, name: str) -> pa.Array:
        table = pq.read_table(self._path, columns=[name], partitioning=None)
        return combined(table.column(name)).cast(COLUMNS[name]) if name in COLUMNS else combined(table.column(name))


def combined(column: pa.ChunkedArray) -> pa.Array:
    """One contiguous array; dictionaries are unified on the way."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return column.unify_dictionaries().combine_chunks()


def all_columns(columns: Columns) -> Iterator[tuple[str, pa.Array]]:
    for name in COLUMNS:
        yield name, columns.column(name)
