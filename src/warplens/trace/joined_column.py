"""Put together a column that comes in parts, without a second copy of all parts in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from warplens.trace.arrays import dictionary_array, numpy_dtype, to_arrow, to_numpy

Array = npt.NDArray[Any]


class UnusualNames(Exception):
    """Names that a damaged file may hold: none at all, one twice, or a code of no name."""


class JoinedNames:
    """The names of all parts in the order of their first use; each part has codes of its own."""

    def __init__(self, names: Sequence[str] = ()) -> None:
        self._codes = {name: code for code, name in enumerate(names)}

    @property
    def names(self) -> list[str]:
        return list(self._codes)

    def codes(self, part: pa.DictionaryArray) -> Array:
        """The codes of a part, as all parts together use them."""
        codes = to_numpy(part.indices)
        try:
            names = part.dictionary.to_pylist()
        except UnicodeDecodeError:
            raise UnusualNames from None
        if part.indices.null_count or None in names or len(set(names)) != len(names):
            raise UnusualNames
        if len(codes) and not (codes.min() >= 0 and codes.max() < len(names)):
            raise UnusualNames
        places = np.array([self._codes.setdefault(name, len(self._codes)) for name in names], codes.dtype)
        return codes if (places == np.arange(len(names))).all() else places[codes]


class JoinedColumn:
    """A column of a known number of rows. Numbers and codes without nulls are copied to their place as they come."""

    def __init__(self, kind: pa.DataType, rows: int) -> None:
        self._is_names, self._names = pa.types.is_dictionary(kind), JoinedNames()
        plain = self._is_names or pa.types.is_integer(kind)
        self._values = np.empty(rows, numpy_dtype(kind)) if plain else None
        self._chunks: list[pa.Array] = []
        self.rows = 0

    def add(self, column: pa.ChunkedArray) -> None:
        """Add the next rows."""
        for chunk in column.chunks:
            numbers = None if self._values is None else self._numbers(chunk)
            if self._values is not None and numbers is None:
                self._chunks, self._values = [self._so_far()] if self.rows else [], None
            if self._values is None or numbers is None:
                self._chunks.append(chunk)
            else:
                self._values[self.rows : self.rows + len(chunk)] = numbers
            self.rows += len(chunk)

    def array(self) -> pa.Array:
        """All rows that were added."""
        return combined(pa.chunked_array(self._chunks)) if self._values is None else self._so_far()

    def _numbers(self, chunk: pa.Array) -> Array | None:
        """The numbers of some rows; None where Arrow has to put them together."""
        assert self._values is not None
        if self.rows + len(chunk) > len(self._values) or chunk.null_count:
            return None
        try:
            return self._names.codes(chunk) if self._is_names else to_numpy(chunk)
        except UnusualNames:
            return None

    def _so_far(self) -> pa.Array:
        assert self._values is not None
        values = self._values[: self.rows]
        return dictionary_array(values, self._names.names) if self._is_names else to_arrow(values)


def combined(column: pa.ChunkedArray) -> pa.Array:
    """Combine the chunks into one contiguous array with one dictionary."""
    if column.num_chunks == 1:
        return column.chunk(0)
    joined = column.unify_dictionaries().combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined
