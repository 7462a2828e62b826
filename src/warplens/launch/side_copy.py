"""Copies to the host on a stream of their own, through pinned memory: the program's streams are not waited for."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from warplens.driver.libcuda import Driver

STAGING_BYTES = 32 << 20
"""Pinned memory that copies go through, in pieces where they are larger."""
_PART_BYTES = 2 << 20
"""What one thread moves out of pinned memory at once."""
_MOST_THREADS = 8

Rows = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RowCopy:
    """The first `width` bytes of each of `rows` rows that lie `pitch` bytes apart on the device."""

    address: int
    pitch: int
    width: int
    rows: int


@dataclass
class _Half:
    """A part of the pinned memory: while the device fills one, the host reads the other."""

    memory: Rows
    event: int
    """Reached when the copies into it are over."""
    staged: list[tuple[Rows, int]] = field(default_factory=list)
    """Where what lies in it belongs, and where it begins."""


class SideCopy:
    """Copies of one context. Not for several threads at once."""

    def __init__(self, lib: Driver, stream: int, staging_bytes: int = STAGING_BYTES) -> None:
        self._lib, self._stream, self._half_bytes = lib, stream, max(1, staging_bytes // 2)
        self._staging: Rows | None = None
        self._halves: list[_Half] = []

    def all_rows(self, copies: Sequence[RowCopy]) -> list[Rows]:
        """Make several copies, as many at once as the pinned memory holds."""
        outputs = [np.empty((one.rows, one.width), np.uint8) for one in copies]
        used = self._half_bytes + 1
        with ThreadPoolExecutor(min(_MOST_THREADS, os.cpu_count() or 1)) as pool:
            for one, output in zip(copies, outputs, strict=True):
                for piece, target in _pieces(one, output, self._half_bytes):
                    if used + target.size > self._half_bytes:
                        half, used = self._next_half(pool), 0
                    host, width = half.memory.ctypes.data + used, target.shape[1]
                    self._lib.copy_rows(host, width, piece, one.pitch, width, len(target), self._stream)
                    half.staged.append((target, used))
                    used += target.size
            while any(half.staged for half in self._halves):
                self._next_half(pool)
        return outputs

    def _next_half(self, pool: ThreadPoolExecutor) -> _Half:
        """The other half of the pinned memory, with nothing in it; what was given to the first one is under way."""
        self.prepare()
        other, filled = self._halves
        self._halves.reverse()
        if filled.staged:
            self._lib.mark(filled.event, self._stream)
        if other.staged:
            self._lib.wait(other.event)
            _move(other, pool)
        return other

    def prepare(self) -> None:
        """Get the pinned memory now: the driver may wait for the GPU when it is asked for some."""
        if self._staging is None:
            size = 2 * self._half_bytes
            pointer = ctypes.cast(self._lib.pinned(size), ctypes.POINTER(ctypes.c_uint8))
            self._staging = np.ctypeslib.as_array(pointer, (size,))
            halves = self._staging[: self._half_bytes], self._staging[self._half_bytes :]
            self._halves = [_Half(memory, self._lib.new_event()) for memory in halves]

    def release(self) -> None:
        """Give the pinned memory back."""
        if self._staging is not None:
            self._lib.free_pinned(self._staging.ctypes.data)
            for half in self._halves:
                self._lib.destroy_event(half.event)
            self._staging, self._halves = None, []


def _move(half: _Half, pool: ThreadPoolExecutor) -> None:
    """Copy what lies in pinned memory to where it belongs; much of it by several threads, since most of the time goes
    into memory that the host touches for the first time."""
    parts = [
        (target[first : first + step], half.memory[at + first * target.shape[1] :])
        for target, at in half.staged
        for step in (max(1, _PART_BYTES // target.shape[1]),)
        for first in range(0, len(target), step)
    ]
    half.staged.clear()
    list((pool.map if len(parts) > 1 else map)(_fill, parts))  # a thread is started when it is first needed


def _fill(part: tuple[Rows, Rows]) -> None:
    target, source = part
    target[:] = source[: target.size].reshape(target.shape)


def _pieces(one: RowCopy, output: Rows, most: int) -> Iterator[tuple[int, Rows]]:
    """The address and the target of parts of at most `most` bytes; none of a copy without bytes."""
    if not output.size:
        return
    if one.width > most:
        for row in range(one.rows):
            for begin in range(0, one.width, most):
                yield one.address + row * one.pitch + begin, output[row : row + 1, begin : begin + most]
        return
    step = most // one.width
    for first in range(0, one.rows, step):
        yield one.address + first * one.pitch, output[first : first + step]
