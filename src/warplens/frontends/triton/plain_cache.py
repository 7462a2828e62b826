"""The plain kernel in Triton's cache: a kernel that ran before it was profiled need not be assembled to be compared."""

from __future__ import annotations

import hashlib
import re
import struct
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from warplens.frontends.triton.ptxas import Resources
from warplens.frontends.wrap import wrap

_REGISTERS, _FRAME = rb"\x04\x2f\x08\x00.{4}(.{4})", rb"\x04\x11\x08\x00.{4}(.{4})"
"""Attributes of a kernel in its cubin: how they are coded, their number, 8 bytes of symbol and value."""
_local = threading.local()


def watch(ours: str) -> Callable[[], None]:
    """Remember what Triton makes a kernel's cache key of; `ours` is what a profile puts into it. Gives what ends it."""
    from triton.compiler import compiler

    if not hasattr(compiler, "get_cache_key"):
        return lambda: None

    def get_cache_key(original: Callable[..., str], source: Any, backend: Any, options: Any, env_vars: Any) -> str:
        def plain() -> str:
            mode = getattr(options, "instrumentation_mode", None)
            return original(
                source, backend, replace(options, instrumentation_mode="") if mode == ours else options, env_vars
            )

        _local.kernel = source.name, plain
        return original(source, backend, options, env_vars)

    return wrap(compiler, "get_cache_key", get_cache_key)


def looked_up() -> Resources | None:
    """What the plain twin of the kernel that this thread compiles takes, if Triton has it and it spills nothing."""
    from triton.runtime.cache import get_cache_manager

    name, key = getattr(_local, "kernel", None) or ("", None)
    if key is None:
        return None
    _local.kernel = None
    group = get_cache_manager(hashlib.sha256(key().encode()).hexdigest()).get_group(f"{name[:150]}.json") or {}
    path = group.get(f"{name[:150]}.cubin")
    return in_cubin(Path(path).read_bytes()) if path else None


def in_cubin(cubin: bytes) -> Resources | None:
    """Registers of a cubin's kernel; None where it keeps anything in local memory, or says neither."""
    info = b"".join(_sections(cubin, b".nv.info"))
    registers, frames = (
        [int.from_bytes(found, "little") for found in re.findall(attribute, info, re.S)]
        for attribute in (_REGISTERS, _FRAME)
    )
    return Resources(max(registers)) if registers and frames and not any(frames) else None


def _sections(elf: bytes, name: bytes) -> Iterator[bytes]:
    """The contents of the sections called `name`."""
    (table,) = struct.unpack_from("<Q", elf, 40)
    size, count, names = struct.unpack_from("<3H", elf, 58)
    heads = [struct.unpack_from("<I4xQQQQ", elf, table + size * index) for index in range(count)]
    for title, _, _, start, length in heads:
        begin = heads[names][3] + title
        if elf[begin : begin + len(name) + 1] == name + b"\0":
            yield elf[start : start + length]
