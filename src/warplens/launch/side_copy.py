"""Copies to the host on a stream of their own, through pinned memory: the program's streams are not waited for."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from warplens.driver.libcuda import Driver

STAGING_BYTES = 32 << 20
"""Pinned memory that copies go through, in pieces where they are larger."""


class SideCopy:
    """Copies of one context. Not for several threads at once."""

    def __init__(self, lib: Driver, stream: int) -> None:
        self._lib, self._stream = lib, stream
        self._done = 0
        self._staging: npt.NDArray[np.uint8] | None = None

    def rows(self, address: int, pitch: int, width: int, rows: int) -> npt.NDArray[np.uint8]:
        """The first `width` bytes of each of `rows` rows that lie `pitch` bytes apart on the device."""
        out = np.empty((rows, width), np.uint8)
        if not rows or not width:
            return out
        staging = self._pinned()
        step = max(1, len(staging) // width)
        for first in range(0, rows, step):
            count = min(step, rows - first)
            host = staging[: count * width]
            self._lib.copy_rows(host.ctypes.data, width, address + first * pitch, pitch, width, count, self._stream)
            self._lib.mark(self._done, self._stream)
            self._lib.wait(self._done)
            out[first : first + count] = host.reshape(count, width)
        return out

    def release(self) -> None:
        """Give the pinned memory back."""
        if self._staging is not None:
            self._lib.free_pinned(self._staging.ctypes.data)
            self._lib.destroy_event(self._done)
            self._staging = None

    def _pinned(self) -> npt.NDArray[np.uint8]:
        if self._staging is None:
            pointer = ctypes.cast(self._lib.pinned(STAGING_BYTES), ctypes.POINTER(ctypes.c_uint8))
            self._staging = np.ctypeslib.as_array(pointer, (STAGING_BYTES,))
            self._done = self._lib.new_event()
        return self._staging
