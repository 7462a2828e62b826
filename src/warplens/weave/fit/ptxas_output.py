"""Read what ptxas reports about kernels: its verbose log (`-v`), and the attributes it writes into a cubin."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

from warplens.weave.fit.resources import Resources

_KERNEL = re.compile(
    r"Function properties for (?P<name>\S+)\n.* (?P<spills>\d+) bytes spill stores.*\n"
    r".*Used (?P<registers>\d+) registers"
)
_INFO = re.compile(r"^ptxas info +: (?!\(C\d+\)).*\n(?:    .*\n)*", re.M)
"""The lines that `-v` adds. ptxas prints numbered advice, such as that wgmma is serialized, without it too."""
_REGISTERS, _FRAME = rb"\x04\x2f\x08\x00.{4}(.{4})", rb"\x04\x11\x08\x00.{4}(.{4})"
"""Attributes of a kernel in its cubin: format, number, size (8 bytes), then the symbol and the value."""


def read_log(log: str) -> Resources:
    """Return what the only kernel in a verbose log takes."""
    return Resources(
        max((int(count) for count in re.findall(r"Used (\d+) registers", log)), default=0),
        sum(int(count) for count in re.findall(r"(\d+) bytes spill stores", log)),
        "wgmma" in log and "serialized" in log,
        len(warnings_in(log)),
    )


def read_kernels(log: str) -> dict[str, Resources]:
    """Return what each kernel in a verbose log takes; its warnings name no kernel and are left out."""
    return {found["name"]: Resources(int(found["registers"]), int(found["spills"])) for found in _KERNEL.finditer(log)}


def warnings_in(log: str) -> list[str]:
    """Return the lines in which ptxas warns of something."""
    return [line for line in log.splitlines() if "warning" in line]


def without_verbose(log: str) -> str:
    """Return what ptxas prints without `-v`."""
    return _INFO.sub("", log)


def read_cubin(cubin: bytes) -> Resources | None:
    """Return what the kernel in a cubin takes; None if it uses local memory, or if the cubin does not say."""
    info = b"".join(_sections(cubin, b".nv.info"))
    registers, frames = (
        [int.from_bytes(found, "little") for found in re.findall(attribute, info, re.S)]
        for attribute in (_REGISTERS, _FRAME)
    )
    return Resources(max(registers)) if registers and frames and not any(frames) else None


def _sections(elf: bytes, name: bytes) -> Iterator[bytes]:
    """Yield the contents of the ELF sections called `name`."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<3H", elf, 58)
    headers = [struct.unpack_from("<I4xQQQQ", elf, table + size * index) for index in range(count)]
    for title, _, _, start, length in headers:
        begin = headers[names][3] + title
        if elf[begin : begin + len(name) + 1] == name + b"\0":
            yield elf[start : start + length]
