"""PTX in the program and libraries mapped into this process, for kernels that were loaded before the hooks.

A CUDA runtime loads the code of a library when it is first used, which may be before a profile begins. The file of the
library still has the PTX, and the kernel's symbol says which part of it.
"""

from __future__ import annotations

import functools
import re
import struct
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from warplens.errors import WarplensError
from warplens.frontends.driver_calls.fat_binary import MAGIC
from warplens.frontends.driver_calls.image_source import ptx_of_image

LARGEST_SECTION = 64 << 20
"""Bytes of device code beyond which a library is not searched: PyTorch has a gigabyte of it, and no PTX."""
_SECTION = b".nv_fatbin\0"
_ENTRY = re.compile(r"\.entry\s+([\w$.]+)")
_MAPPED = re.compile(r"^\S+ ..x. \S+ \S+ \S+\s+(/.*)$", re.MULTILINE)


def find_mapped_ptx(symbol: str, capability: str) -> list[str]:
    """Every different PTX module with this kernel in what is mapped now."""
    try:
        maps = Path("/proc/self/maps").read_text()
    except OSError:
        return []
    texts: list[str] = []
    for path in dict.fromkeys(_MAPPED.findall(maps)):
        for text in kernels_in_file(path, capability).get(symbol, ()):
            if text not in texts:
                texts.append(text)
    return texts


@functools.lru_cache(maxsize=1024)
def kernels_in_file(path: str, capability: str) -> dict[str, list[str]]:
    """By symbol, the PTX modules of a program or library that have the kernel and that this device can run."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for image in _fat_binaries(path):
        try:
            text = ptx_of_image(image, capability)
        except (ValueError, WarplensError):
            continue  # a module that cannot be read has no kernel to offer
        for symbol in set(_ENTRY.findall(text)) if text else ():
            found[symbol].append(text or "")
    return dict(found)


def _fat_binaries(path: str) -> Iterator[bytes]:
    """The fat binaries of a file, which lie one after the other in a section of their own."""
    data = _device_code(path)
    at = 0
    while at + 16 <= len(data):
        magic, _, header, size = struct.unpack_from("<IHHQ", data, at)
        if magic != MAGIC:
            at += 8
            continue
        yield data[at : at + header + size]
        at += -(-(header + size) // 8) * 8


def _device_code(path: str) -> bytes:
    """The section with device code of an ELF file; nothing where there is none, or one too large to search."""
    try:
        with open(path, "rb") as file:
            head = file.read(64)
            if head[:5] != b"\x7fELF\x02":
                return b""
            (table,) = struct.unpack_from("<Q", head, 40)
            size, count, names = struct.unpack_from("<3H", head, 58)
            file.seek(table)
            raw = file.read(size * count)
            sections = [struct.unpack_from("<I4xQQQQ", raw, size * index) for index in range(count)]
            file.seek(sections[names][3])
            titles = file.read(sections[names][4])
            for title, _, _, start, length in sections:
                if titles[title : title + len(_SECTION)] == _SECTION and length <= LARGEST_SECTION:
                    file.seek(start)
                    return file.read(length)
    except (OSError, struct.error, IndexError):
        pass
    return b""
