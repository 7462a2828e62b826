"""A trace file with other rows or another document, as a damaged or foreign one may have them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warplens.trace.io import METADATA_KEY


def rewrite(path: Path, table: pa.Table | None = None, **document: Any) -> Path:
    """Write the file again without checksums, with other rows or other keys of its JSON document."""
    rows = pq.read_table(path)
    fields = json.loads(rows.schema.metadata[METADATA_KEY]) | document
    made = (rows if table is None else table).replace_schema_metadata({METADATA_KEY: json.dumps(fields).encode()})
    pq.write_table(made, path)
    return path


def with_value(path: Path, column: str, row: int, value: Any) -> Path:
    table = pq.read_table(path)
    values = table.column(column).to_pylist()
    values[row] = value
    at, kind = table.schema.get_field_index(column), table.schema.field(column).type
    made = (
        pa.array(values, kind.value_type).dictionary_encode()
        if pa.types.is_dictionary(kind)
        else pa.array(values, kind)
    )
    return rewrite(path, table.set_column(at, column, made))
