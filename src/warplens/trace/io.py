"""Read and write `.warplens`: a Parquet file with one JSON document, or a Hive-partitioned folder of such files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from warplens.errors import CaptureError, WarplensError
from warplens.files import atomic_write, check_writable
from warplens.formats import format_of
from warplens.trace.columns import PARQUET, ParquetColumns, open_parquet
from warplens.trace.merge import merge
from warplens.trace.model import Trace
from warplens.trace.schema import COLUMNS, SCHEMA_VERSION, Losses, Meta

SUFFIX = ".warplens"
METADATA_KEY = b"warplens"
_ROW_GROUP = 1 << 20
_PART = "part-0.parquet"
_DICTIONARY = ["kernel", "region", "kind", "rank", "device", "launch", "sm", "warp", "lane", "depth"]


def read(path: str | os.PathLike[str]) -> Trace:
    """Read a trace from a `.warplens` file, or from a folder of them."""
    source = Path(path)
    return _read_folder(source) if source.is_dir() else _read_file(source)


def save(trace: Trace, path: str | os.PathLike[str], *, force: bool = True, partition_by: tuple[str, ...] = ()) -> Path:
    """Write one file or, with `partition_by` (rank, launch), a folder with one file per combination."""
    target = Path(path)
    if partition_by:
        return _save_folder(trace, target, partition_by, force)
    with atomic_write(target, force=force) as out:
        _write(trace.spans, trace.meta, out)
    return target


def _write(table: pa.Table, meta: Meta, out: Any) -> None:
    document = json.dumps(meta.to_json(), separators=(",", ":")).encode()
    dictionary = [name for name in _DICTIONARY if name in table.column_names]
    pq.write_table(
        table.replace_schema_metadata({METADATA_KEY: document}),
        out,
        compression="zstd",
        compression_level=1,
        row_group_size=_ROW_GROUP,
        use_dictionary=dictionary,
        write_statistics=dictionary,
    )


def _read_file(path: Path) -> Trace:
    remake = "copy it again or profile again"
    if path.stat().st_size == 0:
        raise CaptureError(path, "file", "is empty (0 bytes)", remake)
    try:
        with open_parquet(path) as file:
            schema = file.metadata
    except (pa.ArrowException, OSError) as error:
        if _starts_as_parquet(path):
            raise CaptureError(path, "file", "is cut short: its last bytes are missing", remake) from None
        what = str(error).split(".")[0][:120]
        remedy = f"expected a {SUFFIX} trace or a capture; {remake}"
        if exported := format_of(path.name):
            remedy = f"{exported.suffix} is an export format; name the {SUFFIX} file that it was exported from"
        raise CaptureError(path, "file", f"not a readable Parquet file ({what})", remedy) from None
    document = (schema.metadata or {}).get(METADATA_KEY)
    if document is None:
        remedy = f"it is not a trace; name the {SUFFIX} file that it was exported from"
        raise CaptureError(path, "metadata", "a Parquet file without the 'warplens' key", remedy)
    try:
        fields = json.loads(document)
        version = int(fields["schema"])
        meta = Meta.from_json(fields) if version <= SCHEMA_VERSION else Meta()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CaptureError(
            path, "metadata", f"its JSON document is malformed ({type(error).__name__}: {error})", remake
        ) from None
    if version > SCHEMA_VERSION:
        problem = f"{version} is newer than the {SCHEMA_VERSION} this warplens knows"
        raise CaptureError(path, "schema", problem, "upgrade warplens to read it")
    names = set(schema.schema.to_arrow_schema().names)
    fixed = {
        name: int(value) for name, _, value in (part.partition("=") for part in path.parent.parts) if _is_int(value)
    }
    missing = [name for name in COLUMNS if name not in names and name not in fixed]
    if missing:
        raise CaptureError(path, "columns", f"{', '.join(missing)} missing", remake)
    return Trace(ParquetColumns(path, schema.num_rows, {n: v for n, v in fixed.items() if n not in names}), meta)


def _starts_as_parquet(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(PARQUET)) == PARQUET


def _read_folder(folder: Path) -> Trace:
    """Read the ranks of one run, or the parts of one trace."""
    files = sorted(file for end in (".parquet", SUFFIX) for file in folder.rglob(f"*{end}") if file.is_file())
    if not files:
        remedy = f"expected the {SUFFIX} files of a run's ranks, or a trace written with partition_by"
        raise CaptureError(folder, "folder", "holds no trace", remedy)
    parts = {file: _read_file(file) for file in files}
    first: dict[tuple[int, int], Path] = {}
    for file, part in parts.items():
        for info in part.meta.launches:
            other = first.setdefault((info.rank, info.launch), file)
            if other is not file:
                problem = f"{other.name} and {file.name} both hold launch {info.launch} of rank {info.rank}"
                raise CaptureError(folder, "folder", problem, "they come from two runs: name one")
    return merge(list(parts.values()))


def _save_folder(trace: Trace, folder: Path, keys: tuple[str, ...], force: bool) -> Path:
    unknown = set(keys) - {"rank", "device", "launch"}
    if unknown:
        raise WarplensError(f"partition_by={keys}: allowed are rank, device and launch")
    check_writable(folder, force=force)
    for stale in folder.rglob(_PART):
        stale.unlink()  # a part of an earlier run would be read as part of this one
    losses = trace.meta.losses
    for values in trace.spans.select(list(keys)).group_by(list(keys)).aggregate([]).to_pylist():
        part = trace.select(**values)
        place = folder.joinpath(*(f"{key}={values[key]}" for key in keys))
        place.mkdir(parents=True, exist_ok=True)
        with atomic_write(place / _PART) as out:
            _write(part.spans.drop_columns(list(keys)), replace(part.meta, losses=losses), out)
        losses = Losses()  # stored in the first part only, so that the sum over the folder is right
    return folder


def _is_int(text: str) -> bool:
    return text.lstrip("-").isdigit()
