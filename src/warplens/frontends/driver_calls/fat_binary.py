"""PTX and machine code inside fat binaries, which nvcc puts into programs: compressed or not, for each architecture."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIIIIIQQQ")
"""Kind, version, header size, padded size, compressed size, and four that are not used, then the architecture."""
_PTX, _MACHINE_CODE = 1, 2
_LZ4, _ZSTD = 0x2000, 0x8000
_TARGET = re.compile(r"^\s*\.target\s+sm_\d+([af]?)", re.MULTILINE)


@dataclass(frozen=True)
class FatBinaryEntry:
    """One part of a fat binary: the architecture it was made for, as 90 for sm_90, and its bytes."""

    kind: int
    arch: int
    flags: int
    stored: bytes
    size: int
    """Of the content, if the bytes are compressed."""

    def content(self) -> bytes:
        """The bytes, decompressed. Raises ValueError where they are damaged."""
        codec = "lz4_raw" if self.flags & _LZ4 else "zstd" if self.flags & _ZSTD else ""
        if not codec:
            return self.stored
        import pyarrow

        try:
            return bytes(pyarrow.decompress(self.stored, self.size, codec=codec, asbytes=True))
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"its compressed code cannot be read ({error})") from None

    def text(self) -> str:
        """The PTX. Raises ValueError where it is damaged, or compressed in a way that is not known."""
        text = self.content().partition(b"\0")[0].decode(errors="replace")
        if ".version" not in text[:4096]:
            raise ValueError("its PTX is stored in a way that is not known")
        return text


def ptx_entries(image: bytes) -> list[FatBinaryEntry]:
    """Every PTX of a fat binary; none where the image is something else."""
    return [entry for entry in _entries(image) if entry.kind == _PTX]


def machine_codes(image: bytes, capability: str) -> list[bytes]:
    """Every machine code of a fat binary that this device can run, the one that it does run first; none where the
    image is something else."""
    found = []
    for entry in _usable_codes(image, capability):
        with suppress(ValueError):
            found.append(entry.content())
    return found


def _usable_codes(image: bytes, capability: str) -> list[FatBinaryEntry]:
    """Machine code runs on devices of its own major number, and of its minor number or a newer one."""
    device = _number(capability)
    codes = [entry for entry in _entries(image) if entry.kind == _MACHINE_CODE]
    usable = [entry for entry in codes if entry.arch // 10 == device // 10 and entry.arch <= device]
    return sorted(usable, key=lambda entry: -entry.arch)


def _entries(image: bytes) -> Iterator[FatBinaryEntry]:
    if len(image) < _HEADER.size:
        return
    magic, _, header, size = _HEADER.unpack_from(image)
    if magic != MAGIC:
        return
    at, end = header, min(header + size, len(image))
    while at + _ENTRY.size <= end:
        kind, _, skip, padded, compressed, _, _, arch, _, _, flags, _, whole = _ENTRY.unpack_from(image, at)
        if skip < _ENTRY.size or padded == 0 or at + skip + padded > end:
            return
        is_compressed = bool(flags & (_LZ4 | _ZSTD))
        stored = image[at + skip : at + skip + (compressed if is_compressed else padded)]
        yield FatBinaryEntry(kind, arch, flags, stored, whole if is_compressed else padded)
        at += skip + padded


def best_ptx(image: bytes, capability: str) -> str | None:
    """The PTX that a device of this compute capability can run: the newest one; None where there is none.

    Raises ValueError where it cannot be read, or is older than the machine code that the device runs: sources often
    have other code for older devices.
    """
    device = _number(capability)
    texts = sorted((entry for entry in ptx_entries(image) if entry.arch <= device), key=lambda entry: -entry.arch)
    for entry in texts:
        text = entry.text()
        target = _TARGET.search(text)
        suffix = target[1] if target else ""
        if (suffix == "a" and entry.arch != device) or (suffix == "f" and entry.arch // 10 != device // 10):
            continue
        codes = _usable_codes(image, capability)
        if codes and codes[0].arch > entry.arch:
            raise ValueError(f"its PTX is for compute_{entry.arch}, and this GPU runs its code for sm_{codes[0].arch}")
        return text
    return None


def _number(capability: str) -> int:
    major, _, minor = capability.partition(".")
    return int(major) * 10 + int(minor or 0)
