"""Trace files with damaged bytes, odd columns and odd JSON documents, through everything that reads a trace."""

from __future__ import annotations

import json
import random
import tempfile
from collections.abc import Callable
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console

import warplens as wl
from tests.fuzz.full_documents import full_documents
from tests.fuzz.harness import damage, odd_document
from tests.fuzz.small_captures import small_captures
from tests.support.builders import Span, make_trace
from tests.support.paths import GOLDEN
from warplens.analyse.diff import diff
from warplens.analyse.findings import findings
from warplens.analyse.measured_slopes import slopes_of
from warplens.analyse.region_purity import region_purity
from warplens.analyse.region_tree import region_tree
from warplens.analyse.trace_quality import clock_line, warnings_of
from warplens.commands import info
from warplens.decode import decode
from warplens.trace.checksums import KEY
from warplens.trace.io import METADATA_KEY, save_rank
from warplens.view import terminal

_ROWS = 40
"""Rows of golden traces whose tracks are kept."""
_NUMBERS = (
    0, 1, -1, 2, 5, 31, 32, 64, 127, 1000, 32767, -32768, 2**31 - 1, -(2**31), 2**53, 2**62, 2**63 - 1, -(2**63),
)  # fmt: skip
_FREE = ("region", "kernel", "value", "open", "dur_ns", "dur_cycles", "sm", "depth", "lane", "kind", "count")
_FLOATS = (0.0, -0.0, 1e308, -1e308, float("nan"), float("inf"), 5e-324)
_NAMES = ("", "a", "x" * 500, "\x1b[2J", "=1+1", "</script>", "wait", "span", "\u202e", "new\nline")
_SUFFIXES = (".pftrace", ".json", ".json.gz", ".hatchet", ".csv", ".parquet", ".html", ".warplens")


def case(draw: random.Random, folder: Path) -> None:
    """Damage real trace files and use what loads."""
    path = folder / "t.warplens"
    whole = draw.choice(_files())
    how = draw.randrange(10)
    if how < 2:
        path.write_bytes(damage(whole, draw))  # checksums find it
    elif how < 4:
        path.write_bytes(damage(_plain(whole), draw))
    else:
        table, text = _parsed(whole)
        document: Any = json.loads(text)
        if how < 8:
            for _ in range(draw.randint(1, 3)):
                table = _other_contents(table, draw) if draw.random() < 0.6 else _odd_table(table, draw)
        if how >= 7:
            for _ in range(draw.randint(1, 3)):
                document = odd_document(document, draw)
        _write(table, json.dumps(document).encode(), path, draw)
    _use(wl.load(path), draw, folder)


@cache
def _files() -> list[bytes]:
    """Files of every kind of content, of few rows; each case starts from one of them."""
    golden = sorted(GOLDEN.rglob("*.warplens"), key=lambda file: file.stat().st_size)[:6]
    made = [
        make_trace([Span("a", 0, 10), Span("b", 2, 3), Span("v", 20, kind="value", value=2.0)]),
        make_trace([Span("wait", at * 9, 8, block=at % 3, warp=at % 4, launch=at // 8) for at in range(24)]),
        make_trace([Span("a", 0, 10, rank=rank) for rank in range(3)]),
        make_trace([Span("tick", 5, kind="instant"), Span("x", 7, 0), Span("y", 8, 4, open=True)]),
        *map(decode, small_captures()),
        *full_documents(),
    ]
    return [_bytes(trace) for trace in (*made, *map(_first_tracks, map(wl.load, golden)))]


def _first_tracks(trace: wl.Trace) -> wl.Trace:
    """The tracks of the first rows of a trace, with all that its document says about the whole."""
    return trace.select(track=trace.numpy("track")[:_ROWS].tolist())


@cache
def _parsed(whole: bytes) -> tuple[pa.Table, str]:
    table = pq.read_table(pa.BufferReader(whole))
    return table, table.schema.metadata[METADATA_KEY].decode()


def _bytes(trace: wl.Trace) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        return trace.save(Path(folder) / "t.warplens").read_bytes()


@cache
def _plain(whole: bytes) -> bytes:
    """The file as an older warplens wrote it: without checksums."""
    table, _ = _parsed(whole)
    kept = {key: value for key, value in table.schema.metadata.items() if key != KEY}
    out = pa.BufferOutputStream()
    pq.write_table(table.replace_schema_metadata(kept), out)
    return bytes(out.getvalue())


def _write(table: pa.Table, document: bytes, path: Path, draw: random.Random) -> None:
    made = table.replace_schema_metadata({METADATA_KEY: document})
    pq.write_table(made, path, row_group_size=draw.choice((None, 3, 50)), use_dictionary=draw.random() < 0.5)


def _odd_table(table: pa.Table, draw: random.Random) -> pa.Table:
    name = draw.choice(table.column_names)
    at, column = table.schema.get_field_index(name), table.column(name)
    how = draw.randrange(12)
    if how == 0:
        return table.drop_columns([name])
    if how == 1:
        return table.take(pa.array([draw.randrange(len(table)) for _ in range(len(table))])) if len(table) else table
    if how == 2:
        return table.slice(draw.randrange(len(table) + 1), draw.randrange(len(table) + 1))
    if how == 3:
        kinds = (pa.string(), pa.float32(), pa.int64(), pa.uint64(), pa.bool_(), pa.null(), pa.list_(pa.int8()))
        return table.set_column(at, name, pa.nulls(len(table), draw.choice(kinds)))
    values = column.to_pylist()
    odd = _odd_values(column.type)
    for _ in range(draw.choice((1, 1, 2, len(values)))):
        if values:
            values[draw.randrange(len(values))] = draw.choice((*odd, draw.choice(values), None))
    return _with_column(table, name, values)


def _other_contents(table: pa.Table, draw: random.Random) -> pa.Table:
    """One value replaced wherever it is, in a column that may hold nearly anything: most such files can be loaded."""
    name = draw.choice([name for name in _FREE if name in table.column_names])
    values = table.column(name).to_pylist()
    old, new = draw.choice(values or [None]), draw.choice((*_odd_values(table.column(name).type)[:9], *values[:3]))
    return _with_column(table, name, [new if value == old else value for value in values])


def _with_column(table: pa.Table, name: str, values: list[Any]) -> pa.Table:
    at, kind = table.schema.get_field_index(name), table.column(name).type
    try:
        if pa.types.is_dictionary(kind):
            return table.set_column(at, name, pa.array(values, kind.value_type).dictionary_encode())
        return table.set_column(at, name, pa.array(values, kind))
    except (pa.ArrowException, OverflowError):
        if pa.types.is_integer(kind):
            return table.set_column(at, name, pa.array(values, pa.int64()))
        return table


def _odd_values(kind: pa.DataType) -> tuple[Any, ...]:
    if pa.types.is_dictionary(kind):
        return _NAMES
    if pa.types.is_boolean(kind):
        return (True, False)
    if pa.types.is_floating(kind):
        return _FLOATS
    return _NUMBERS


def _use(trace: wl.Trace, draw: random.Random, folder: Path) -> None:
    """Some of what users do with a trace."""
    uses: list[Callable[[], Any]] = [
        lambda: trace.stats(draw.choice(("region", "kernel", "sm", "warp", "block", "launch", "rank"))).to_json(),
        lambda: findings(trace),
        lambda: region_tree(trace),
        lambda: trace.select(time=(0, 10), region=trace.regions[:1]).stats(),
        lambda: [clock_line(trace), warnings_of(trace), repr(trace), trace._repr_html_()],
        lambda: _in_terminal(trace),
        lambda: diff(trace, trace).to_json(),
        lambda: [region_purity(trace), slopes_of(trace), trace.stalls().to_json()],
        lambda: _described(trace.save(folder / "described.warplens", force=True), draw.random() < 0.5),
        lambda: _as_ranks(trace, folder / "job"),
        *(lambda suffix=suffix: trace.export(folder / f"o{suffix}", force=True) for suffix in _SUFFIXES[:-1]),
        lambda: wl.load(trace.save(folder / "again.warplens", force=True)).spans,
    ]
    for use in draw.sample(uses, 3):
        with suppress(wl.WarplensError):  # what one use refuses must not spoil the next
            use()


def _in_terminal(trace: wl.Trace) -> None:
    console = Console(file=StringIO(), width=100)
    console.print(terminal.timeline(trace, by="sm", width=100, most=20))
    console.print(terminal.spreads(trace))


def _described(path: Path, as_json: bool) -> None:
    """`warplens info` of the file."""
    with redirect_stdout(StringIO()):
        info.command.main([str(path), *["--json"] * as_json], standalone_mode=False)


def _as_ranks(trace: wl.Trace, folder: Path) -> None:
    """Two ranks of a job that wrote the same as the first rank of the trace, put on one axis."""
    one = trace.select(rank=trace.numpy("rank")[:1].tolist())
    for rank in range(2):
        launches = [replace(info, rank=rank) for info in one.meta.launches]
        notes = {str(rank): known for known in list(one.meta.rank_notes.values())[:1]}
        meta = replace(one.meta, launches=launches, rank_notes=notes, rank_clocks={})
        save_rank(wl.Trace(one.spans, meta), folder, rank)
    findings(wl.load(folder))
