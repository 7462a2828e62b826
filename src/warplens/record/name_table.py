"""Region names in a CUDA module, found by scanning the cubin or a copy of the module's constants.

Each mark leaves one object in the module's constants: `{magic, id, line, name length, file length, name, file}`.
The id is a hash of the name, which identifies valid objects and makes a hand-written table unnecessary.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field

from warplens.errors import WarplensError
from warplens.record.layout import MAX_REGION, REGION_BITS

NAME_MAGIC = 0x9F1D5A3C574C4E31
KERNEL_MAGIC = 0x9F1D5A3C574C4B31
"""The magic of the object that holds the kernel's name, where the host cannot know it."""
_FIXED = struct.Struct("<QIIHH")
NAME_BYTES = _FIXED.size
"""Bytes of an object before its text."""
MAX_NAME = 1024
"""Upper limit of an object's size, and the size of the object that marks the end of the names."""
NAMES_BYTES = (64 << 10) + 256
"""Bytes reserved for a module's names: 64 KiB of constant memory, plus the rounding of the copy loop."""


@dataclass(frozen=True)
class Names:
    """The names of region ids, and the source location of each region's first mark."""

    regions: Mapping[int, str] = field(default_factory=dict)
    locations: Mapping[int, str] = field(default_factory=dict)
    kernel: str = ""


def region_id(name: str | bytes) -> int:
    """The id that device code computes for `name`: FNV-1a folded to 24 bits, never 0."""
    value = 0x811C9DC5
    for byte in name.encode() if isinstance(name, str) else name:
        value = (value ^ byte) * 0x01000193 & 0xFFFFFFFF
    return (value >> REGION_BITS ^ value) & MAX_REGION or 1


def name_object(name: str, file: str, line: int, *, magic: int = NAME_MAGIC) -> bytes:
    """The object of one mark, for front ends that write the table themselves."""
    texts = [text.encode() + b"\0" for text in (name, file)]
    size = NAME_BYTES + len(texts[0]) + len(texts[1])
    if size >= MAX_NAME:
        raise WarplensError(f"region {name[:40]!r}… in {file}: name and path take {size} bytes, limit {MAX_NAME - 1}")
    return _FIXED.pack(magic, region_id(name), line, *map(len, texts)) + b"".join(texts)


def scan(data: bytes) -> Names:
    """Find all names in a cubin, an uncompressed fatbin or a copy of a module's constants."""
    regions: dict[int, str] = {}
    locations: dict[int, str] = {}
    magic = struct.pack("<Q", NAME_MAGIC)
    at = data.find(magic)
    while at >= 0:
        entry = _entry(data, at)
        if entry is not None:
            ident, name, where = entry
            if regions.setdefault(ident, name) != name:
                raise WarplensError(
                    f"regions {regions[ident]!r} and {name!r} have the same id {ident}; rename one of them"
                )
            locations.setdefault(ident, where)
        at = data.find(magic, at + 1)
    at = data.find(struct.pack("<Q", KERNEL_MAGIC))
    kernel = _entry(data, at) if at >= 0 else None
    return Names(regions, locations, kernel[1] if kernel else "")


def _entry(data: bytes, at: int) -> tuple[int, str, str] | None:
    if at + NAME_BYTES > len(data):
        return None
    _, ident, line, name_length, file_length = _FIXED.unpack_from(data, at)
    text = data[at + NAME_BYTES : at + NAME_BYTES + name_length + file_length]
    name, file = (part.split(b"\0")[0] for part in (text[:name_length], text[name_length:]))
    return (ident, _decoded(name), f"{_decoded(file)}:{line}") if name and region_id(name) == ident else None


def _decoded(text: bytes) -> str:
    """Decode a C string: UTF-8, or else Latin-1, which most other source files use."""
    try:
        return text.decode()
    except UnicodeDecodeError:
        return text.decode("latin-1")
