"""Read a cubin, the ELF file that holds machine code: its kernels, its PTX text and what they use."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass

from warplens.errors import WarplensError

_CUDA_MACHINE = 190
_LARGEST_TABLE = 1 << 16
_TEXT, _PARAMETERS = ".text.", ".nv.constant0."
_LINES, _PTX = ".nv_debug_line_sass", ".nv_debug_ptx_txt"


class SassError(WarplensError):
    """Machine code that cannot be read, or a tool that is missing; the text is one line."""


class NoLineTable(SassError):
    """Machine code that cannot be traced back to lines of its PTX."""


@dataclass(frozen=True)
class CubinFile:
    """The sections of a cubin by name."""

    data: bytes
    sections: Mapping[str, bytes]

    @property
    def kernels(self) -> list[str]:
        """The symbols of its kernels. Other functions may have text sections, too, but no parameters of their own."""
        return [
            name[len(_TEXT) :]
            for name in self.sections
            if name.startswith(_TEXT) and f"{_PARAMETERS}{name[len(_TEXT) :]}" in self.sections
        ]

    @property
    def has_lines(self) -> bool:
        """Whether it maps machine code to lines of its PTX, as `ptxas -lineinfo` writes it."""
        return any(name == _LINES or name.startswith(f"{_LINES}.") for name in self.sections)

    @property
    def ptx(self) -> str:
        """The PTX it was assembled from, without comments but with the same line numbers; empty if it has none."""
        # A linker adds a number to the name.
        texts = [text for name, text in self.sections.items() if name == _PTX or name.startswith(f"{_PTX}.")]
        return texts[0].replace(b"\0", b"\n").decode(errors="replace") if len(texts) == 1 else ""

    def code(self, kernel: str) -> bytes:
        """The bytes of a kernel's machine code; empty if it has no such kernel."""
        return self.sections.get(_TEXT + kernel, b"")


def read_cubin_file(data: bytes) -> CubinFile:
    """Parse a cubin; raises a `SassError` for anything else."""
    if data[:4] != b"\x7fELF" or data[4:5] != b"\x02":
        raise SassError("this is no cubin: it does not start as a 64-bit ELF file")
    try:
        (machine,) = struct.unpack_from("<H", data, 18)
        if machine != _CUDA_MACHINE:
            raise SassError(f"this is an ELF file for another machine (number {machine}), not for CUDA")
        return CubinFile(data, _sections(data))
    except (struct.error, IndexError, ValueError) as error:
        raise SassError(f"this cubin is damaged: {error}") from None


def _sections(data: bytes) -> dict[str, bytes]:
    (table,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<3H", data, 58)
    if count > _LARGEST_TABLE or table + size * count > len(data):
        raise ValueError("its section table is outside the file")
    headers = [struct.unpack_from("<IIQQQQ", data, table + size * index) for index in range(count)]
    start, length = headers[names][4:6]
    titles = data[start : start + length]
    found = {}
    for title, kind, _, _, offset, extent in headers:
        name = titles[title : titles.index(b"\0", title)].decode(errors="replace")
        inside = kind != 8  # a section without data, such as shared memory
        if inside and offset + extent > len(data):
            raise ValueError(f"its section {name} is outside the file")
        found[name] = data[offset : offset + extent] if inside else b""
    return found
