"""Parquet files put together from pieces that were encoded one by one: some columns of one row group each.

pyarrow encodes a file in one thread, and from its first row group to its last. Each piece is a Parquet file of its own,
made by pyarrow in any thread and at any time. Their column chunks are copied behind each other, and a footer says where
they are now.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from warplens.trace.checksums import PARQUET, read_footer
from warplens.trace.thrift_compact import I16, I64, LIST, STRUCT, Structure, read_structure, write_structure

_NUM_ROWS, _ROW_GROUPS = 3, 4
_COLUMNS, _GROUP_BYTES, _GROUP_ROWS, _GROUP_OFFSET, _GROUP_COMPRESSED, _ORDINAL = 1, 2, 3, 5, 6, 7
_CHUNK_OFFSET, _CHUNK_META = 2, 3
_PATH, _BYTES, _COMPRESSED, _DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE = 3, 6, 7, 9, 10, 11
"""Field numbers of parquet.thrift."""


@dataclass(frozen=True)
class Piece:
    """Some columns of one row group."""

    data: pa.Buffer
    """The piece as a file."""
    group: Structure
    """The row group, as the footer of that file has it."""
    sums: Sequence[int]
    """The checksum of each column chunk."""

    @property
    def names(self) -> list[str]:
        return [name.decode() for name in self.chunks]

    @property
    def chunks(self) -> dict[bytes, tuple[Structure, int]]:
        """The column chunks by the names of their columns, with their places in `data`, and their checksums."""
        chunks = zip(self.group[_COLUMNS][1][1], self.sums, strict=True)
        return {chunk[_CHUNK_META][1][_PATH][1][1][0]: (chunk, checksum) for chunk, checksum in chunks}


def encode(table: pa.Table, **options: Any) -> Piece:
    """Encode a table as one row group."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=max(table.num_rows, 1), **options)
    data = sink.getvalue()
    (group,) = _footer(data)[_ROW_GROUPS][1][1]
    return Piece(data, group, [zlib.crc32(_bytes(data, chunk)) for chunk in group[_COLUMNS][1][1]])


@dataclass(frozen=True)
class WrittenGroups:
    """The row groups of a file that has no footer yet."""

    rows: int
    described: Sequence[bytes]
    """Each row group as the footer has it."""
    sums: Sequence[int]
    """The checksums of all column chunks."""


def write_groups(out: BinaryIO, names: Sequence[str], groups: Iterable[Sequence[Piece]]) -> WrittenGroups:
    """Begin a file with row groups that are made of pieces, which together have the columns of these names."""
    out.write(PARQUET)
    rows, place = 0, len(PARQUET)
    described, sums = [], []
    for number, pieces in enumerate(groups):
        group, first = dict(pieces[0].group), place
        found = {name: (piece.data, *chunk) for piece in pieces for name, chunk in piece.chunks.items()}
        chunks = []
        for name in names:
            data, chunk, checksum = found[name.encode()]
            stored = _bytes(data, chunk)
            out.write(stored)
            chunks.append(_moved(chunk, place - _begin(chunk)))
            sums.append(checksum)
            place += len(stored)
        group[_COLUMNS] = LIST, (STRUCT, chunks)
        for total, field in ((_GROUP_BYTES, _BYTES), (_GROUP_COMPRESSED, _COMPRESSED)):
            group[total] = I64, sum(chunk[_CHUNK_META][1][field][1] for chunk in chunks)
        group |= {_GROUP_OFFSET: (I64, first), _ORDINAL: (I16, number)}
        rows += group[_GROUP_ROWS][1]
        described.append(write_structure(group))
    return WrittenGroups(rows, described, sums)


def write_footer(out: BinaryIO, table: pa.Table, written: WrittenGroups, **options: Any) -> None:
    """End a file with the schema and the metadata of a table without rows."""
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, **options)
    changed = {_NUM_ROWS: (I64, written.rows), _ROW_GROUPS: (LIST, (STRUCT, written.described))}
    text = write_structure(_footer(sink.getvalue()) | changed)
    out.write(text + len(text).to_bytes(4, "little") + PARQUET)


def _footer(data: pa.Buffer) -> Structure:
    return read_structure(read_footer(pa.BufferReader(data))[1])


def _bytes(data: pa.Buffer, chunk: Structure) -> pa.Buffer:
    return data.slice(_begin(chunk), chunk[_CHUNK_META][1][_COMPRESSED][1])


def _begin(chunk: Structure) -> int:
    meta = chunk[_CHUNK_META][1]
    return int(min(meta[field][1] for field in (_DATA_PAGE, _DICTIONARY_PAGE) if field in meta))


def _moved(chunk: Structure, by: int) -> Structure:
    """A column chunk that lies elsewhere."""
    meta = dict(chunk[_CHUNK_META][1])
    for field in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE):
        if field in meta:
            meta[field] = I64, meta[field][1] + by
    # The offset of the chunk's own metadata, which is nowhere but in the footer.
    return {**chunk, _CHUNK_OFFSET: (I64, 0), _CHUNK_META: (STRUCT, meta)}
