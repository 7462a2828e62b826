"""Protobuf's wire format, as far as Perfetto packets need it."""

from __future__ import annotations

import struct

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.uint8]
Mask = npt.NDArray[np.bool_]

MASK64 = (1 << 64) - 1
_SMALL = [bytes((value,)) for value in range(128)]


def varint(value: int) -> bytes:
    """Encode a varint; negative numbers as 64-bit two's complement."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= MASK64
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


_TAGS = [varint(tag) for tag in range(128 << 3)]


def number(field: int, value: int) -> bytes:
    """A varint field."""
    return _TAGS[field << 3] + varint(value)


def data(field: int, value: bytes | str) -> bytes:
    """A length-delimited field: bytes, text or a message."""
    # A name from JSON may contain a lone surrogate, which UTF-8 cannot encode.
    payload = value.encode(errors="replace") if isinstance(value, str) else value
    return _TAGS[field << 3 | 2] + varint(len(payload)) + payload


def real(field: int, value: float) -> bytes:
    return _TAGS[field << 3 | 1] + struct.pack("<d", value)


def fixed(field: int, value: int) -> bytes:
    return _TAGS[field << 3 | 1] + (value & MASK64).to_bytes(8, "little")


def sizes(values: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    """The size of each value as a varint, in bytes."""
    size = np.ones(len(values), np.int64)
    for byte in range(1, 10):
        size += values >= np.uint64(1 << 7 * byte)
    return size


class MessagePacker:
    """Encodes many short messages at once, as a matrix with one message per row and a mask of the used bytes."""

    def __init__(self, rows: int) -> None:
        self._rows = rows
        self._parts: list[Matrix] = []
        self._masks: list[Mask] = []

    def constant(self, values: bytes, where: Mask | None = None) -> None:
        """Append the same bytes to every row of `where`."""
        self.raw(np.broadcast_to(np.frombuffer(values, np.uint8), (self._rows, len(values))), where)

    def byte(self, values: npt.NDArray[np.int64]) -> None:
        """Append one byte to every row."""
        self.raw(values.astype(np.uint8)[:, None])

    def varint(self, values: npt.NDArray[np.uint64], where: Mask | None = None) -> None:
        """Append one varint to every row of `where`."""
        width = int(sizes(values.max(initial=0, keepdims=True))[0]) if self._rows else 1
        shifts = np.arange(0, 7 * width, 7, dtype=np.uint64)
        parts = values[:, None] >> shifts
        more = parts > 127
        used = np.ones((self._rows, width), bool)
        used[:, 1:] = more[:, :-1]
        if where is not None:
            used &= where[:, None]
        self._parts.append((parts & np.uint64(127)).astype(np.uint8) | more.astype(np.uint8) << 7)
        self._masks.append(used)

    def raw(self, values: Matrix, where: Mask | None = None) -> None:
        """Append a fixed number of bytes to every row of `where`."""
        used = np.ones(values.shape, bool) if where is None else np.broadcast_to(where[:, None], values.shape)
        self._parts.append(values)
        self._masks.append(used)

    def event_head(
        self, sequence: npt.NDArray[np.uint64], delta: npt.NDArray[np.uint64], event_bytes: npt.NDArray[np.int64]
    ) -> None:
        """Begin a packet of a sequence: the time since its last one, and the size of the track event that follows."""
        self.constant(b"\x0a")
        self.byte(4 + sizes(sequence) + sizes(delta) + event_bytes)
        self.constant(b"\x50")
        self.varint(sequence)
        self.constant(b"\x40")
        self.varint(delta)
        self.constant(b"\x5a")
        self.byte(event_bytes)

    def tobytes(self) -> bytes:
        """All messages, concatenated."""
        return np.concatenate(self._parts, axis=1)[np.concatenate(self._masks, axis=1)].tobytes()
