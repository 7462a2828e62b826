"""Thrift's compact protocol, as far as the footer of a Parquet file needs it: read and write structures.

A structure is a dictionary from field numbers to pairs of a type and a value; a list is a pair of the type of its
elements and their values. Nothing is known of what fields mean, so what is not changed is written as it was. A
structure inside another may be given as the bytes that it was written as.
"""

from __future__ import annotations

from typing import Any

TRUE, FALSE, BYTE, I16, I32, I64, DOUBLE, BINARY, LIST, SET, MAP, STRUCT = range(1, 13)
Structure = dict[int, tuple[int, Any]]


def read_structure(data: bytes) -> Structure:
    """The structure that `data` begins with."""
    return _Reader(data).structure()


def write_structure(structure: Structure) -> bytes:
    out = bytearray()
    _put_structure(out, structure)
    return bytes(out)


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _number(self) -> int:
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def _signed(self) -> int:
        value = self._number()
        return value >> 1 ^ -(value & 1)

    def _bytes(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def structure(self) -> Structure:
        found: Structure = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            found[number] = kind, self._value(kind, in_list=False)
        return found

    def _value(self, kind: int, *, in_list: bool) -> Any:
        if kind in (TRUE, FALSE):
            return self._byte() if in_list else kind
        if kind == BYTE:
            return self._byte()
        if kind in (I16, I32, I64):
            return self._signed()
        if kind == DOUBLE:
            return self._bytes(8)
        if kind == BINARY:
            return self._bytes(self._number())
        if kind in (LIST, SET):
            head = self._byte()
            size = head >> 4 if head >> 4 < 15 else self._number()
            return head & 15, [self._value(head & 15, in_list=True) for _ in range(size)]
        if kind == STRUCT:
            return self.structure()
        raise ValueError(f"type {kind} is not used in Parquet")


def _put_number(out: bytearray, value: int) -> None:
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def _put_signed(out: bytearray, value: int) -> None:
    _put_number(out, value << 1 if value >= 0 else (-value << 1) - 1)


def _put_structure(out: bytearray, structure: Structure) -> None:
    before = 0
    for number, (kind, value) in sorted(structure.items()):
        step = number - before
        if 0 < step < 16:
            out.append(step << 4 | kind)
        else:
            out.append(kind)
            _put_signed(out, number)
        if kind not in (TRUE, FALSE):
            _put_value(out, kind, value)
        before = number
    out.append(0)


def _put_value(out: bytearray, kind: int, value: Any) -> None:
    if kind in (TRUE, FALSE, BYTE):
        out.append(value)
    elif kind in (I16, I32, I64):
        _put_signed(out, value)
    elif kind == DOUBLE:
        out += value
    elif kind == BINARY:
        _put_number(out, len(value))
        out += value
    elif kind in (LIST, SET):
        of, values = value
        if len(values) < 15:
            out.append(len(values) << 4 | of)
        else:
            out.append(0xF0 | of)
            _put_number(out, len(values))
        for one in values:
            _put_value(out, of, one)
    elif isinstance(value, bytes):  # a structure that is written already
        out += value
    else:
        _put_structure(out, value)
