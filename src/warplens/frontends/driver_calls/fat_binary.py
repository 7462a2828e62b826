"""PTX inside fat binaries, which nvcc puts into programs: compressed or not, one for each architecture."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

MAGIC = 0xBA55ED50
_HEADER = struct.Struct("<IHHQ")
_ENTRY = struct.Struct("<HHIQIIIIIIQQQ")
"""Kind, version, header size, padded size, compressed size, and four that are not used, then the architecture."""
_PTX = 1
_LZ4, _ZSTD = 0x2000, 0x8000


@dataclass(frozen=True)
class PtxEntry:
    """One PTX text of a fat binary: the architecture it was written for, as 90 for sm_90, and its bytes."""

    arch: int
    flags: int
    data: bytes
    size: int
    """Of the text, if the bytes are compressed."""

    def text(self) -> str:
        """The text. Raises ValueError where it is compressed in a way that is not known, or damaged."""
        data = self.data
        codec = "lz4_raw" if self.flags & _LZ4 else "zstd" if self.flags & _ZSTD else ""
        if codec:
            import pyarrow

            try:
                data = pyarrow.decompress(data, self.size, codec=codec, asbytes=True)
            except (pyarrow.ArrowException, OSError) as error:
                raise ValueError(f"its compressed PTX cannot be read ({error})") from None
        text = bytes(data).partition(b"\0")[0].decode(errors="replace")
        if ".version" not in text[:4096]:
            raise ValueError("its PTX is stored in a way that is not known")
        return text


def ptx_entries(image: bytes) -> Iterator[PtxEntry]:
    """Every PTX of a fat binary; none where the image is something else."""
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
        if kind == _PTX:
            is_compressed = bool(flags & (_LZ4 | _ZSTD))
            data = image[at + skip : at + skip + (compressed if is_compressed else padded)]
            yield PtxEntry(arch, flags, data, whole if is_compressed else padded)
        at += skip + padded


def best_ptx(image: bytes, capability: str) -> str | None:
    """The PTX that a device of this compute capability can run: the newest one; None where there is none."""
    major, _, minor = capability.partition(".")
    device = int(major) * 10 + int(minor or 0)
    usable = [entry for entry in ptx_entries(image) if entry.arch <= device]
    return max(usable, key=lambda entry: entry.arch).text() if usable else None
