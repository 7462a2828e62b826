"""The table of spans as CSV or Parquet."""

from __future__ import annotations

from pathlib import Path

import pyarrow.csv as csv
import pyarrow.parquet as pq

from warplens.files import atomic_write
from warplens.trace.model import Trace


def write_csv(trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a `.csv` with a header line; names are text, and missing values are empty."""
    with atomic_write(path, force=force) as out:
        table = trace.spans
        for name in ("kernel", "region", "kind"):
            at = table.schema.get_field_index(name)
            table = table.set_column(at, name, table.column(name).cast("string"))
        csv.write_csv(table, out)


def write_parquet(trace: Trace, path: Path, *, force: bool = True, annotate: bool | None = None) -> None:
    """Write a plain `.parquet`: the spans without the trace's JSON document."""
    with atomic_write(path, force=force) as out:
        pq.write_table(trace.spans, out, compression="zstd")
