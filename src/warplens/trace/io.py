"""Read and write `.warplens`: a Parquet file with one JSON document, or a Hive-partitioned folder of such files."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from warplens.errors import CaptureError, WarplensError
from warplens.files import atomic_write, check_writable
from warplens.formats import format_of
from warplens.trace import checksums
from warplens.trace.columns import TraceFile
from warplens.trace.document import NewerSchema, WrongDocument, document_of, parse_document
from warplens.trace.merge import merge
from warplens.trace.model import Trace, has_parts
from warplens.trace.parquet_pieces import Piece, encode, write_footer, write_groups
from warplens.trace.parts import TracePart
from warplens.trace.row_groups import row_groups
from warplens.trace.schema import ABSENT, AGGREGATE_COLUMNS, COLUMNS, SCHEMA_VERSION, Losses, Meta
from warplens.trace.validation import RANGES, REMEDY

SUFFIX = ".warplens"
METADATA_KEY = b"warplens"
_MEASURES_KEY = b"warplens.measures"
"""What a file of one whole trace keeps for its statistics."""
MAX_ROWS = (1 << 31) - 1
_ROWS_PER_BYTE = 1024
"""A row of a trace takes about nine bytes; a file that claims far more rows would fill the memory."""
_SHARES = 4
_MOST_THREADS = 16
_PART = "part-0.parquet"
_DIFFERENCES = ["start_ns", "dur_ns", "start_cycle", "dur_cycles", "track", "block", "parent"]
"""Columns stored as differences of neighbours: that is written and read in less time, and is smaller as a rule."""
_LEVELS = {"parent": 6}
"""How hard zstd tries: the differences of parents repeat with the code's loops, other columns gain nothing."""
_ROWS_AT_ONCE = 1 << 16
"""Rows that are encoded together."""
_DICTIONARY = ["kernel", "region", "kind", "rank", "device", "launch", "sm", "warp", "lane", "depth"]
_RANGES = ["track", "start_ns", "dur_ns"]
"""Further columns whose least and greatest value each row group states, so that readers can skip it."""


def read(path: str | os.PathLike[str]) -> Trace:
    """Read a trace from a `.warplens` file, or from a folder of them."""
    source = Path(path)
    return _read_folder(source) if source.is_dir() else _read_file(source)


def save(
    trace: Trace,
    path: str | os.PathLike[str],
    *,
    force: bool = True,
    partition_by: tuple[str, ...] = (),
    measures: Callable[[], bytes] = bytes,
) -> Path:
    """Write one file or, with `partition_by` (rank, launch), a folder with one file per combination.

    `measures` computes what one file keeps for its statistics.
    """
    target = Path(path)
    if partition_by:
        return _save_folder(trace, target, partition_by, force)
    with atomic_write(target, force=force) as out:
        _write(trace, trace.meta, out, measures=measures)
    return target


def _write(
    trace: Trace, meta: Meta, out: Any, without: Sequence[str] = (), measures: Callable[[], bytes] = bytes
) -> None:
    """Write all columns but some. Row groups of which columns are encoded already get the others."""
    stored = [name for name in trace.column_names if name not in without]
    trace.prefetch(*stored)
    tracks, launches = (trace.runs(name).starts for name in ("track", "launch"))
    groups = {rows: list(trace.encoded.get(rows, ())) for rows in row_groups(tracks, launches, len(trace))}
    shares = {}
    for rows, pieces in groups.items():
        known = {name for piece in pieces for name in piece.names}
        shares[rows] = _shares([name for name in stored if name not in known], rows)
    tasks = [(rows, names) for rows, some in shares.items() for names in some]

    def encoded(task: tuple[tuple[int, int], list[str]]) -> Piece:
        return encode_columns(trace.rows(task[1], *task[0]))

    with ExitStack() as stack:
        threads = min(len(tasks), os.cpu_count() or 1, _MOST_THREADS)
        several: Callable[..., Iterator[Any]] = map
        if threads > 1:  # to start one takes longer than to encode a small trace
            several = stack.enter_context(ThreadPoolExecutor(threads)).map
        list(several(trace.column, [name for name in stored if not has_parts(trace, name)]))
        kept = several(lambda compute: compute(), [measures])  # it takes longer than any piece
        others = several(encoded, tasks)
        document = document_of(meta)  # while others encode
        completed = ([*pieces, *islice(others, len(shares[rows]))] for rows, pieces in groups.items())
        written = write_groups(out, stored, completed)
        # A table without rows may get a row group as well.
        sums = checksums.placeholder(max(len(groups), 1) * len(stored))
        metadata = {METADATA_KEY: document, checksums.KEY: sums, _MEASURES_KEY: next(kept)}
    if not metadata[_MEASURES_KEY]:
        del metadata[_MEASURES_KEY]
    write_footer(out, trace.rows(stored, 0, 0).replace_schema_metadata(metadata), written, **_encoding(stored))
    checksums.fill(out, written.sums)


def encode_columns(rows: pa.Table) -> Piece:
    """Some columns of one row group, as a file has them."""
    return encode(rows, **_encoding(rows.column_names))


def _shares(names: Sequence[str], rows: tuple[int, int]) -> list[list[str]]:
    """The columns that are encoded one after the other, in shares that take about as long; few rows are one share."""
    count = _SHARES if rows[1] - rows[0] > _ROWS_AT_ONCE else 1
    slow = sorted(names, key=lambda name: name not in _DIFFERENCES)
    return [share for first in range(count) if (share := slow[first::count])]


def _encoding(names: Sequence[str]) -> dict[str, Any]:
    dictionary = [name for name in _DICTIONARY if name in names]
    return {
        "compression": "zstd",
        "compression_level": {name: _LEVELS.get(name, 1) for name in names},
        "use_dictionary": dictionary,
        "column_encoding": {name: "DELTA_BINARY_PACKED" for name in _DIFFERENCES if name in names},
        "write_batch_size": _ROWS_AT_ONCE,
        "write_statistics": dictionary + [name for name in _RANGES if name in names],
        "write_page_checksum": True,
    }


def _read_file(path: Path) -> Trace:
    part = open_part(path)
    trace = part.trace()
    if part.file.checked and all(name in ABSENT for name in part.fixed):
        trace.kept_measures = (part.file.metadata.metadata or {}).get(_MEASURES_KEY, b"")
    return trace


def open_part(path: Path) -> TracePart:
    """Open one file of a trace and check its document, without reading rows."""
    if path.stat().st_size == 0:
        raise CaptureError(path, "file", "is empty (0 bytes)", REMEDY)
    file = _open(path)
    document = (file.metadata.metadata or {}).get(METADATA_KEY)
    if document is None:
        remedy = f"it is not a trace; name the {SUFFIX} file that it was exported from"
        raise CaptureError(path, "metadata", "a Parquet file without the 'warplens' key", remedy)
    try:
        meta = parse_document(document)
    except WrongDocument as error:
        raise CaptureError(path, "metadata", f"its JSON document is malformed ({error})", REMEDY) from None
    except NewerSchema as error:
        problem = f"{error.args[0]} is newer than the {SCHEMA_VERSION} this warplens knows"
        raise CaptureError(path, "schema", problem, "upgrade warplens to read it") from None
    names = set(checksums.column_names(file.metadata))
    named = (part.partition("=") for part in path.parent.parts)
    fixed = {name: int(value) for name, _, value in named if value.lstrip("-").isdigit()}
    wanted = [*COLUMNS, *(AGGREGATE_COLUMNS if meta.aggregated else ())]
    missing = [name for name in wanted if name not in names and name not in fixed and name not in ABSENT]
    if missing:
        raise CaptureError(path, "columns", f"{', '.join(missing)} missing", REMEDY)
    fixed = {name: value for name, value in fixed.items() if name in COLUMNS and name not in names}
    _check_fixed(path, fixed)
    fixed |= {name: value for name, value in ABSENT.items() if name not in names}
    return TracePart(file, _row_count(path, file), fixed, meta)


def _open(path: Path) -> TraceFile:
    """Open a file that is a whole Parquet file; anything else is an error that says what it may be instead."""
    try:
        return TraceFile(path)
    except checksums.Damaged as error:
        damage = str(error)
        if "checksum" in damage:
            raise CaptureError(path, "file", damage, REMEDY) from None
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        damage = (str(error) or type(error).__name__).split(".")[0][:120]
    if _starts_as_parquet(path):
        raise CaptureError(path, "file", "is cut short: its last bytes are missing", REMEDY)
    is_named_so = path.suffix in (SUFFIX, ".parquet")
    remedy = REMEDY if is_named_so else f"name a {SUFFIX} file, a folder of them, or a capture"
    if exported := format_of(path.name):
        remedy = f"{exported.suffix} is an export format; name the {SUFFIX} file that it was exported from"
    raise CaptureError(path, "file", f"is not a trace ({damage})", remedy)


def _row_count(path: Path, file: TraceFile) -> int:
    rows = int(file.metadata.num_rows)
    if not 0 <= rows <= min(MAX_ROWS, path.stat().st_size * _ROWS_PER_BYTE):
        raise CaptureError(path, "rows", f"claims {rows:,} rows, more than a file of its size can hold", REMEDY)
    return rows


def _check_fixed(path: Path, fixed: dict[str, int]) -> None:
    for name, value in fixed.items():
        low, high = RANGES.get(name, (0, -1))
        if not low <= value <= high:
            problem = f"{name}={value} is no folder of a trace"
            raise CaptureError(path, "folder", problem, "give the folder the name that warplens gave it")


def _starts_as_parquet(path: Path) -> bool:
    with open(path, "rb") as file:
        return file.read(len(checksums.PARQUET)) == checksums.PARQUET


def part_files(folder: Path) -> list[Path]:
    """The files of the ranks of one run, or of the parts of one trace. Names with `_` or `.` in front are those of jobs
    that are writing, as `_temporary`, which every reader of such folders passes over."""

    def is_part(file: Path) -> bool:
        return file.is_file() and not any(name.startswith(("_", ".")) for name in file.relative_to(folder).parts)

    files = sorted(filter(is_part, (file for end in (".parquet", SUFFIX) for file in folder.rglob(f"*{end}"))))
    if not files:
        remedy = f"expected the {SUFFIX} files of a run's ranks, or a trace written with partition_by"
        raise CaptureError(folder, "folder", "holds no trace", remedy)
    return files


def check_one_run(folder: Path, parts: Mapping[Path, Meta]) -> None:
    """Raise an error if two files hold the same launch, so that they come from two runs."""
    first: dict[tuple[int, int], Path] = {}
    for file, meta in parts.items():
        for info in meta.launches:
            other = first.setdefault((info.rank, info.launch), file)
            if other is not file:
                names = f"{other.relative_to(folder)} and {file.relative_to(folder)}"
                problem = f"{names} both hold launch {info.launch} of rank {info.rank}"
                raise CaptureError(folder, "folder", problem, "they come from two runs: name one")


@contextmanager
def one_of_parts(count: int) -> Iterator[None]:
    """A part that cannot be read does not make the others useless: the error says how to get at them."""
    try:
        yield
    except CaptureError as error:
        if count == 1:
            raise
        remedy = f"{error.remedy}, or move it out of the folder to read the others"
        raise CaptureError(error.path, error.field, error.problem, remedy) from None


def _read_folder(folder: Path) -> Trace:
    files = part_files(folder)
    with one_of_parts(len(files)):
        parts = {file: _read_file(file) if len(files) == 1 else _read_whole(file) for file in files}
    check_one_run(folder, {file: part.meta for file, part in parts.items()})
    merged = merge(list(parts.values()))
    merged.checked = all(part.checked for part in parts.values())
    return merged


def _read_whole(path: Path) -> Trace:
    """Read every column at once and close the file: a run may have more ranks than a process may open files."""
    part = _read_file(path)
    whole = Trace(part.spans, part.meta)
    whole.checked = part.checked
    return whole


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
            _write(part, replace(part.meta, losses=losses), out, keys)
        losses = Losses()  # stored in the first part only, so that the sum over the folder is right
    return folder


def rank_part(folder: Path, rank: int) -> Path:
    """The file of one rank in the folder of a job."""
    return folder / f"rank={rank}" / _PART


def save_rank(trace: Trace, folder: Path, rank: int) -> Path:
    """Write the part of one rank into the folder of its job. No rank waits for another, or touches its part."""
    target = rank_part(folder, rank)
    target.parent.mkdir(parents=True, exist_ok=True)
    with atomic_write(target) as out:
        _write(trace, trace.meta, out, ["rank"])
    return target
