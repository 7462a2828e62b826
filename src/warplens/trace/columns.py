"""Sources of a trace's columns: decoded arrays, a table in memory, or a Parquet file read column by column."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from warplens.errors import CaptureError
from warplens.trace.arrays import numpy_dtype, to_arrow
from warplens.trace.schema import COLUMNS

Array = npt.NDArray[Any]


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
        return combined(self._table.column(name))


class LazyColumns:
    """Columns that are computed by a function each, so that only the columns in use cost time."""

    def __init__(
        self,
        rows: int,
        makers: Mapping[str, Callable[[], pa.Array]],
        takers: Mapping[str, Callable[[Array], Array]],
    ) -> None:
        self.rows = rows
        self.takers = takers
        """For columns that are constant along a track: functions that give their values at some rows only."""
        self._makers = makers

    def column(self, name: str) -> pa.Array:
        return self._makers[name]()


PARQUET = b"PAR1"
"""The first bytes of a Parquet file."""


@contextmanager
def open_parquet(path: Path) -> Iterator[pq.ParquetFile]:
    """Open a Parquet file by its name in bytes, since Arrow refuses names that are not UTF-8."""
    with pa.OSFile(os.fsencode(path)) as file:
        yield pq.ParquetFile(file)


class ParquetColumns:
    """The columns of one Parquet file; `fixed` columns are constants from the name of its folder."""

    def __init__(self, path: Path, rows: int, fixed: Mapping[str, int]) -> None:
        self._path = path
        self._fixed = fixed
        self.rows = rows

    def column(self, name: str) -> pa.Array:
        return self.read([name])[name]

    def read(self, names: Sequence[str]) -> dict[str, pa.Array]:
        """Read several columns in one pass over the file."""
        stored = [name for name in names if name not in self._fixed]
        try:
            with open_parquet(self._path) as file:
                table = file.read(stored)
            found = {name: combined(table.column(name).cast(COLUMNS[name])) for name in stored}
        except (pa.ArrowException, OSError) as error:
            problem = f"cannot be read ({str(error).splitlines()[0][:120]})"
            raise CaptureError(
                self._path, f"columns {', '.join(stored)}", problem, "copy it again or profile again"
            ) from None
        for name in set(names) - set(stored):
            found[name] = to_arrow(np.full(self.rows, self._fixed[name], numpy_dtype(COLUMNS[name])))
        return found


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Combine the chunks into one contiguous array with one dictionary."""
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.unify_dictionaries().combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
