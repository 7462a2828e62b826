"""Convert between numpy and Arrow without copies, and without importing pandas as pyarrow's conversions do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


def to_arrow(values: Array, missing: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Wrap a numpy array as an Arrow array; rows where `missing` is true are null."""
    validity = None if missing is None else _bits(~missing)
    data = _bits(values) if values.dtype == bool else pa.py_buffer(np.ascontiguousarray(values))
    return pa.Array.from_buffers(pa.from_numpy_dtype(values.dtype), len(values), [validity, data])


def to_numpy(array: pa.Array) -> Array:
    """The numbers of an Arrow array as numpy; a null double becomes NaN."""
    kind, (validity, data) = array.type, array.buffers()
    end = array.offset + len(array)
    if pa.types.is_boolean(kind):
        return _unpacked(data, array.offset, end)
    values = (
        np.frombuffer(data, numpy_dtype(kind))[array.offset : end] if data else np.zeros(len(array), numpy_dtype(kind))
    )
    if array.null_count and pa.types.is_floating(kind):
        return np.where(_unpacked(validity, array.offset, end), values, np.nan)
    return values


def string_array(texts: Sequence[str]) -> pa.Array:
    """An Arrow array of strings."""
    encoded = [text.encode("utf-8", "backslashreplace") for text in texts]
    offsets = np.zeros(len(texts) + 1, np.int32)
    offsets[1:] = np.cumsum([len(text) for text in encoded])
    return pa.StringArray.from_buffers(len(texts), pa.py_buffer(offsets), pa.py_buffer(b"".join(encoded)))


def dictionary_array(codes: Array, names: Sequence[str]) -> pa.Array:
    """An Arrow array of names, stored as codes that index them."""
    return pa.DictionaryArray.from_arrays(to_arrow(codes), string_array(names))


def numpy_dtype(kind: pa.DataType) -> np.dtype[Any]:
    """The numpy type of an Arrow type; for a dictionary, that of its codes."""
    return np.dtype(str(kind.index_type if pa.types.is_dictionary(kind) else kind).replace("double", "float64"))


def run_starts(values: Array) -> npt.NDArray[np.intp]:
    """The first index of each run of equal values, such as the first row of each track in an ordered column."""
    changes = values[1:] != values[:-1]
    return np.flatnonzero(np.append(True, changes)) if len(values) else np.empty(0, np.intp)


def _bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))


def _unpacked(data: pa.Buffer, begin: int, end: int) -> npt.NDArray[np.bool_]:
    packed = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
    return np.unpackbits(packed, count=end, bitorder="little")[begin:].view(bool)
