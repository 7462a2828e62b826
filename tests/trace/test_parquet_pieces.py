"""Files that are put together from pieces hold what pyarrow would have written at once."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import warplens as wl
from tests.support.paths import ROOT
from tests.support.small_launches import small_launches
from warplens.decode import decode
from warplens.trace import checksums, io, row_groups
from warplens.trace.model import Trace
from warplens.trace.parquet_pieces import encode, write_footer, write_groups
from warplens.trace.thrift_compact import DOUBLE, I16, I64, LIST, STRUCT, TRUE, read_structure, write_structure


@pytest.fixture(scope="module")
def trace() -> Trace:
    capture = small_launches(5, blocks=4)
    for launch in capture.launches:
        launch.extra.clear()
    return decode(capture)


def footer_of(table: pa.Table, **options: object) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    return checksums.read_footer(pa.BufferReader(sink.getvalue()))[1]


def test_a_footer_is_written_as_it_was_read(trace: Trace) -> None:
    wide = pa.table({f"column {number}": pa.array([number, None], pa.float64()) for number in range(40)})
    for footer in (footer_of(trace.spans), footer_of(wide, row_group_size=1), footer_of(wide.slice(0, 0))):
        assert write_structure(read_structure(footer)) == footer


numbers = st.integers(-(2**63), 2**63 - 1)
values = st.one_of(
    st.tuples(st.just(I64), numbers),
    st.tuples(st.just(I16), st.integers(-(2**15), 2**15 - 1)),
    st.tuples(st.just(DOUBLE), st.binary(min_size=8, max_size=8)),
    st.just((TRUE, TRUE)),
    st.tuples(st.just(LIST), st.tuples(st.just(I64), st.lists(numbers, max_size=40))),
)
structures = st.recursive(
    st.dictionaries(st.integers(1, 2**15 - 1), values),
    lambda inner: st.dictionaries(st.integers(1, 2**15 - 1), st.tuples(st.just(STRUCT), inner), max_size=3),
)


@settings(max_examples=60, deadline=None)
@given(structures)
def test_any_structure_comes_back(structure: dict) -> None:
    assert read_structure(write_structure(structure)) == structure


@pytest.mark.parametrize("rows", [0, 1, 6, 7, 8, 49])
@pytest.mark.parametrize("shares", [1, 3])
def test_pieces_in_any_order_make_the_file_of_one_writer(rows: int, shares: int) -> None:
    random = np.random.default_rng(rows)
    table = pa.table(
        {
            "number": random.integers(-(2**60), 2**60, rows),
            "name": pa.array(random.choice(["a", "b"], rows).tolist(), pa.string()).dictionary_encode(),
            "maybe": pa.array([None if one < 0.5 else one for one in random.random(rows)], pa.float64()),
            "lists": pa.array([list(range(number % 3)) for number in range(rows)], pa.list_(pa.int16())),
        }
    )
    names = [table.column_names[first::shares] for first in range(shares)]
    groups = [[encode(table.select(some).slice(first, 7)) for some in reversed(names)] for first in range(0, rows, 7)]
    sink = pa.BufferOutputStream()
    written = write_groups(sink, table.column_names, groups)
    write_footer(sink, table.slice(0, 0).replace_schema_metadata({b"key": b"value"}), written)
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()), page_checksum_verification=True)
    assert file.read().equals(table)
    assert file.metadata.metadata[b"key"] == b"value"
    assert [file.metadata.row_group(at).num_rows for at in range(len(groups))] == [len(g) for g in _cut(rows)]
    plain = pa.BufferOutputStream()
    pq.write_table(table, plain, row_group_size=7)
    other = pq.read_metadata(pa.BufferReader(plain.getvalue()))
    for at in range(len(groups)):
        assert file.metadata.row_group(at).total_byte_size == other.row_group(at).total_byte_size


def _cut(rows: int) -> list[range]:
    return [range(first, min(first + 7, rows)) for first in range(0, rows, 7)]


def test_a_trace_of_several_row_groups_is_read_back(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "MOST_ROWS", 33)
    monkeypatch.setattr(row_groups, "_LEAST_ROWS", 20)
    monkeypatch.setattr(io, "_ROWS_AT_ONCE", 8)
    path = trace.save(tmp_path / "pieces.warplens")
    read = wl.load(path)
    assert read.spans.equals(trace.spans)
    assert read.checked
    metadata = pq.read_metadata(path)
    assert metadata.num_row_groups > 2
    chunk = metadata.row_group(0).column(metadata.schema.names.index("sm"))
    assert chunk.statistics.has_min_max


def test_every_damaged_byte_of_such_a_file_is_found(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_groups, "MOST_ROWS", 64)
    monkeypatch.setattr(row_groups, "_LEAST_ROWS", 64)
    path = trace.save(tmp_path / "pieces.warplens")
    whole = path.read_bytes()
    for place in np.random.default_rng(0).integers(4, len(whole) - 8, 40).tolist():
        damaged = bytearray(whole)
        damaged[place] ^= 0x10
        path.write_bytes(damaged)
        with pytest.raises(wl.WarplensError):
            wl.load(path).spans  # noqa: B018


def test_saving_does_not_import_pandas(tmp_path: Path) -> None:
    """Some of pyarrow's conversions do, which takes longer than the rest of a profile's end."""
    program = (
        "import sys\n"
        "from tests.support.flown_launches import plain_launches\n"
        "from warplens.decode import decode\n"
        "from warplens.record.capture import Capture\n"
        "decode(Capture(plain_launches(3, blocks=2))).save(sys.argv[1])\n"
        "sys.exit('pandas' in sys.modules)\n"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    command = [sys.executable, "-c", program, str(tmp_path / "t.warplens")]
    assert subprocess.run(command, env=environment, timeout=120, check=False).returncode == 0
