"""The table of spans as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from warplens.files import atomic_write
from warplens.text import spreadsheet_text
from warplens.trace.arrays import string_array, to_arrow
from warplens.trace.model import Trace


def write_csv(trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a `.csv` with a header line; names are text, and missing values are empty."""
    with atomic_write(path, force=force) as out:
        table = trace.spans
        for name in ("kernel", "region", "kind"):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, _texts(trace, name))
        for name in (one for one in table.column_names if pa.types.is_list(table.schema.field(one).type)):
            texts = [" ".join(map(str, values)) for values in table.column(name).to_pylist()]
            table = table.set_column(table.schema.get_field_index(name), name, pa.array(texts, pa.string()))
        csv.write_csv(table, out)


def _texts(trace: Trace, name: str) -> pa.Array:
    """A column of names as texts that no spreadsheet takes for a formula."""
    codes, names = trace.codes(name)
    return string_array([spreadsheet_text(one) for one in names]).take(to_arrow(codes))


def write_parquet(trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a plain `.parquet`: the spans without the trace's JSON document."""
    with atomic_write(path, force=force) as out:
        pq.write_table(trace.spans, out, compression="zstd")
