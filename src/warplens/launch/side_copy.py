"""Copies to the host on a stream of their own, through pinned memory: the program's streams are not waited for."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from warplens.driver.libcuda import Driver

STAGING_BYTES = 32 << 20
"""Pinned memory that copies go through, in pieces where they are larger."""

Rows = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class RowCopy:
    """The first `width` bytes of each of `rows` rows that lie `pitch` bytes apart on the device."""

    address: int
    pitch: int
    width: int
    rows: int


class SideCopy:
    """Copies of one context. Not for several threads at once."""

    def __init__(self, lib: Driver, stream: int, staging_bytes: int = STAGING_BYTES) -> None:
        self._lib, self._stream, self._staging_bytes = lib, stream, staging_bytes
        self._done = 0
        self._staging: Rows | None = None

    def all_rows(self, copies: Sequence[RowCopy]) -> list[Rows]:
        """Make several copies; the host waits once for as many as the pinned memory holds."""
        outputs = [np.empty((one.rows, one.width), np.uint8) for one in copies]
        staging = self._pinned() if any(output.size for output in outputs) else None
        staged: list[tuple[Rows, int]] = []
        used = 0
        for one, output in zip(copies, outputs, strict=True):
            for piece, target in _pieces(one, output, self._staging_bytes):
                if staging is None:
                    continue
                if used + target.size > len(staging):
                    self._finish(staging, staged)
                    used = 0
                host = staging.ctypes.data + used
                width = target.shape[1]
                self._lib.copy_rows(host, width, piece, one.pitch, width, len(target), self._stream)
                staged.append((target, used))
                used += target.size
        if staging is not None:
            self._finish(staging, staged)
        return outputs

    def _finish(self, staging: Rows, staged: list[tuple[Rows, int]]) -> None:
        """Wait for the copies under way, and move them where they belong."""
        self._lib.mark(self._done, self._stream)
        self._lib.wait(self._done)
        for target, at in staged:
            target[:] = staging[at : at + target.size].reshape(target.shape)
        staged.clear()

    def prepare(self) -> None:
        """Get the pinned memory now: the driver may wait for the GPU when it is asked for some."""
        self._pinned()

    def release(self) -> None:
        """Give the pinned memory back."""
        if self._staging is not None:
            self._lib.free_pinned(self._staging.ctypes.data)
            self._lib.destroy_event(self._done)
            self._staging = None

    def _pinned(self) -> Rows:
        if self._staging is None:
            pointer = ctypes.cast(self._lib.pinned(self._staging_bytes), ctypes.POINTER(ctypes.c_uint8))
            self._staging = np.ctypeslib.as_array(pointer, (self._staging_bytes,))
            self._done = self._lib.new_event()
        return self._staging


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
