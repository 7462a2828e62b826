"""The tables of partial results: one row per measure of one cell, and how tables of pieces become that of the whole.

A cell is a region in one group of one kernel variant. Counts, sums, sums of squares, minima and maxima merge exactly,
and so do the counts of a quantile sketch (analyse/quantile_sketch.py). A table is as large as there are cells and
buckets, however many spans were counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Array = npt.NDArray[Any]


class Measure(IntEnum):
    """What a row counts; `member` is the warp, the SM, the bucket or the launch that it counts it of."""

    CYCLES = 0
    NS = 1
    OWN_CYCLES = 2
    OWN_NS = 3
    OPEN = 4
    WARP = 5
    SM = 6
    CYCLES_BUCKET = 7
    NS_BUCKET = 8
    VALUE = 9
    VALUE_BUCKET = 10
    NOT_FINITE = 11
    INSTANT = 12
    EXTENT_CYCLES = 13
    EXTENT_NS = 14
    LAUNCH = 15


KEYS = {"variant": pa.int32(), "group": pa.string(), "region": pa.string(), "measure": pa.int8(), "member": pa.int64()}
SUMS = {
    "count": (pa.int64(), "sum"),
    "total": (pa.int64(), "sum"),
    "squares": (pa.decimal128(38, 0), "sum"),
    "low": (pa.float64(), "min"),
    "high": (pa.float64(), "max"),
    "real": (pa.float64(), "sum"),
    "real_squares": (pa.float64(), "sum"),
}
"""`real` and `real_squares` are sums over values: of the deviation from the middle of the bucket, and of its square."""
SCHEMA = pa.schema([*KEYS.items(), *((name, kind) for name, (kind, _) in SUMS.items())])
_EMPTY = {"low": np.inf, "high": -np.inf}


def merge_partials(tables: Iterable[pa.Table]) -> pa.Table:
    """The partial result of all pieces together. Sums of values are rounded in the order of the tables."""
    merged, pending, rows = SCHEMA.empty_table(), list[pa.Table](), 0
    for table in tables:
        pending.append(table)
        rows += table.num_rows
        if rows > max(merged.num_rows, 1 << 16):
            merged, pending, rows = _merged([merged, *pending]), [], 0
    return _merged([merged, *pending])


def _merged(tables: list[pa.Table]) -> pa.Table:
    grouped = pa.concat_tables(tables).group_by(list(KEYS), use_threads=False)
    made = grouped.aggregate([(name, how) for name, (_, how) in SUMS.items()])
    return made.select([*KEYS, *(f"{name}_{how}" for name, (_, how) in SUMS.items())]).rename_columns(SCHEMA.names)


class PartialRows:
    """The rows of a table, gathered measure by measure; `cell` is a number that `names` turns into names."""

    def __init__(self) -> None:
        self._parts: list[dict[str, Any]] = []

    def add(self, measure: Measure, cell: Array, count: Array | None = None, **columns: Any) -> None:
        given = {"cell": cell, "measure": np.full(len(cell), measure, np.int8), **columns}
        self._parts.append(given if count is None else given | {"count": count})

    def table(self, names: Callable[[Array], tuple[Array, pa.Array, pa.Array]]) -> pa.Table:
        """The table; `names` gives the variants, groups and regions of cells."""
        found = [*names(self._column("cell", np.dtype(np.int64)))]
        for field in list(SCHEMA)[len(found) :]:
            kind = np.dtype(object) if field.name == "squares" else np.dtype(field.type.to_pandas_dtype())
            found.append(self._column(field.name, kind))
        return pa.table([pa.array(one, field.type) for one, field in zip(found, SCHEMA, strict=True)], SCHEMA)

    def _column(self, name: str, kind: np.dtype[Any]) -> Array:
        fill = _EMPTY.get(name, Decimal(0) if name == "squares" else 0)
        parts = [np.asarray(part[name] if name in part else np.full(len(part["cell"]), fill)) for part in self._parts]
        return np.concatenate(parts).astype(kind) if parts else np.empty(0, kind)
