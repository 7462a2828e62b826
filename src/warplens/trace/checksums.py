"""Checksums of a `.warplens` file: the CRC-32 of its footer and of each column chunk, kept in the footer itself.

Parquet's own page checksums cover neither the page headers nor the footer, where one flipped bit also changes rows.
The numbers stand under one key of the footer as hexadecimal digits: first the footer's, computed while its own digits
are zeros, then those of the chunks, row group by row group. They are written as zeros and filled in afterwards, because
a chunk's place is known only once the file is written.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Collection, Iterator, Sequence
from typing import BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

KEY = b"warplens.checksums"
_PREFIX = b"crc32:"
_DIGITS = 8
PARQUET = b"PAR1"
"""The first and the last bytes of a Parquet file."""
_TAIL = struct.Struct("<I4s")
"""The last bytes of a Parquet file: the length of the footer, and the magic."""
_ENTRY = re.compile(re.escape(KEY) + rb"\x18[\x80-\xff]*[\x00-\x7f]" + _PREFIX + rb"([0-9a-f]+)")
"""The key and its value as the footer stores them: a string is the byte 0x18, its length and its text."""


class Damaged(Exception):
    """Bytes that do not have their checksum, or that are no footer; `column` names the column they belong to."""

    def __init__(self, problem: str, column: str = "") -> None:
        super().__init__(problem)
        self.column = column


def placeholder(chunks: int) -> bytes:
    """The value to store under `KEY` when writing a file with at most this many column chunks."""
    return _PREFIX + b"0" * (_DIGITS * (1 + chunks))


def fill(file: BinaryIO, sums: Sequence[int]) -> None:
    """Replace the placeholder in a file that was just written by the checksums of its column chunks and its footer."""
    place, footer = read_footer(file)
    entry = _ENTRY.search(footer)
    assert entry is not None, "the file was written without a placeholder"
    begin, end = entry.span(1)
    digits = b"".join(b"%08x" % value for value in sums)
    assert len(digits) <= end - begin - _DIGITS, "the placeholder does not fit the number of chunks"
    digits = digits.ljust(end - begin - _DIGITS, b"0")
    footer = footer[: begin + _DIGITS] + digits + footer[end:]
    file.seek(place + begin)
    file.write(b"%08x" % zlib.crc32(footer) + digits)
    file.seek(0, 2)


def sums_of(file: BinaryIO) -> list[int]:
    """The checksums of the column chunks of a file."""
    sums = []
    for offset, size in _chunks(parse(read_footer(file)[1])):
        file.seek(offset)
        sums.append(zlib.crc32(file.read(size)))
    return sums


def read_footer(file: BinaryIO) -> tuple[int, bytes]:
    """The offset and the bytes of the footer."""
    size = file.seek(0, 2)
    if size < len(PARQUET) + _TAIL.size:
        raise Damaged("it is too short for a Parquet file")
    file.seek(size - _TAIL.size)
    length, magic = _TAIL.unpack(file.read(_TAIL.size))
    place = size - _TAIL.size - length
    if magic != PARQUET or place < len(PARQUET):
        raise Damaged("it does not end as a Parquet file does")
    file.seek(place)
    return place, file.read(length)


def parse(footer: bytes) -> pq.FileMetaData:
    """Parse a footer alone, so that exactly the bytes that were checked are the ones in use."""
    return pq.read_metadata(pa.BufferReader(PARQUET + footer + _TAIL.pack(len(footer), PARQUET)))


class ChunkSums:
    """The checksums of one file's column chunks."""

    def __init__(self, metadata: pq.FileMetaData, sums: list[int]) -> None:
        names = column_names(metadata)
        self._of: dict[str, list[tuple[int, int, int]]] = {name: [] for name in names}
        self._checked: set[tuple[str, int]] = set()
        """Chunks that were read already: a file that changes afterwards is refused for that."""
        for at, ((offset, size), expected) in enumerate(zip(_chunks(metadata), sums, strict=True)):
            self._of[names[at % len(names)]].append((offset, size, expected))

    def check(self, file: BinaryIO, name: str, groups: Collection[int] | None = None) -> None:
        """Raise `Damaged` where the bytes of a column are not those that were written, in some row groups or in all."""
        for group, (offset, size, expected) in enumerate(self._of[name]):
            if (groups is not None and group not in groups) or (name, group) in self._checked:
                continue
            file.seek(offset)
            if zlib.crc32(file.read(size)) != expected:
                raise Damaged(f"its checksum does not match (row group {group}): the file was damaged", name)
            self._checked.add((name, group))


def verified(footer: bytes) -> tuple[pq.FileMetaData, ChunkSums | None]:
    """Check a footer and parse it; a file without checksums, from an older warplens, has None instead of sums."""
    entry = _ENTRY.search(footer)
    if entry is None:
        if KEY + b"\x18" in footer:
            raise Damaged("its checksums cannot be read: the file was damaged")
        return parse(footer), None
    begin = entry.start(1)
    blank = footer[:begin] + b"0" * _DIGITS + footer[begin + _DIGITS :]
    digits = entry[1]
    if len(digits) < _DIGITS or len(digits) % _DIGITS or zlib.crc32(blank) != int(digits[:_DIGITS], 16):
        raise Damaged("the checksum of its footer does not match: the file was damaged")
    metadata = parse(footer)
    sums = [int(digits[at : at + _DIGITS], 16) for at in range(_DIGITS, len(digits), _DIGITS)]
    chunks = metadata.num_row_groups * metadata.num_columns
    if len(sums) < chunks:
        raise Damaged("it has fewer checksums than column chunks")
    return metadata, ChunkSums(metadata, sums[:chunks])


def column_names(metadata: pq.FileMetaData) -> list[str]:
    """The name of the column that each column chunk of a row group belongs to; a list has one chunk for its values."""
    return [metadata.schema.column(at).path.partition(".")[0] for at in range(metadata.num_columns)]


def _chunks(metadata: pq.FileMetaData) -> Iterator[tuple[int, int]]:
    """The place and size of each column chunk, row group by row group."""
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for column in range(metadata.num_columns):
            chunk = row_group.column(column)
            first = chunk.dictionary_page_offset
            yield chunk.data_page_offset if first is None else first, chunk.total_compressed_size
