"""Write a large file without filling the system's cache with it, which takes longer than to make the text."""

from __future__ import annotations

import errno
import os
from typing import BinaryIO

_DONT_CACHE = 0x80
"""RWF_DONTCACHE of Linux 6.14: the system writes at once, and uses the memory again for what comes next."""
_UNIT = 1 << 16
"""Bytes that are written are a multiple of this, so that no part of a page has to be read again."""
_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class UncachedFile:
    """Writes to the end of a file, as any file does where the system knows no other way."""

    def __init__(self, file: BinaryIO) -> None:
        file.flush()
        self._file, self._offset = file, file.seek(0, os.SEEK_END)
        self._rest = b""
        self._supported = hasattr(os, "pwritev")

    def __enter__(self) -> UncachedFile:
        return self

    def write(self, data: bytes | memoryview) -> int:
        view = memoryview(data)
        cut = (len(self._rest) + len(view)) // _UNIT * _UNIT - len(self._rest)
        if cut <= 0:
            self._rest += view
        else:
            self._put([memoryview(self._rest), view[:cut]])
            self._rest = bytes(view[cut:])
        return len(view)

    def _put(self, parts: list[memoryview]) -> None:
        while self._supported and any(parts):
            try:
                written = os.pwritev(self._file.fileno(), parts, self._offset, _DONT_CACHE)
            except OSError as error:
                if error.errno not in _UNSUPPORTED:
                    raise
                self._supported = False
                self._file.seek(self._offset)
                break
            self._offset += written
            while parts and written >= len(parts[0]):
                written -= len(parts.pop(0))
            parts = [part[written:] if at == 0 else part for at, part in enumerate(parts)]
        for part in parts:
            self._file.write(part)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            if self._supported:
                self._file.seek(self._offset)
            self._file.write(self._rest)
