"""Where launch buffers lie: what every front end's device memory must do, and the driver's own."""

from __future__ import annotations

import weakref
from typing import Protocol

import numpy as np
import numpy.typing as npt

from warplens.driver.libcuda import driver
from warplens.errors import WarplensError
from warplens.record.capture import Device

BUDGET_SHARE = 0.25
"""The share of the device's memory that buffers of finished launches may hold before they are brought home."""


class Buffer(Protocol):
    """Zeroed device bytes; `align` fixes where the tracks start."""

    @property
    def nbytes(self) -> int: ...

    def align(self, alignment: int) -> int:
        """The first aligned address, where the tracks start."""

    def synchronize(self) -> None: ...

    def rows(self, count: int, stride: int, offset: int, width: int) -> npt.NDArray[np.uint8]:
        """Bytes [offset, offset + width) of each of `count` tracks, on the host."""


class Memory(Protocol):
    """A module or object that makes buffers."""

    def allocate(self, nbytes: int, stream: int | None) -> Buffer:
        """Zeroed bytes, ordered before the launch on `stream`; MemoryError where there are none."""

    def budget(self) -> int:
        """Bytes that launches may hold on the device."""

    def device_index(self) -> int:
        """The number of the current device."""

    def device(self) -> Device:
        """The current device."""


class DriverBuffer:
    """Zeroed device bytes that are given back when nobody holds them any more. They are read in the context that made
    them, whichever GPU is current by then."""

    def __init__(self, nbytes: int, stream: int) -> None:
        lib = driver()
        self.nbytes, self.start, self._context = nbytes, 0, lib.context()
        self.address = lib.allocate(nbytes)
        weakref.finalize(self, lib.free, self.address).atexit = False
        lib.clear(self.address, nbytes, stream)

    def align(self, alignment: int) -> int:
        self.start = -self.address % alignment
        return self.address + self.start

    def synchronize(self) -> None:
        with driver().inside(self._context):
            driver().synchronize()

    def rows(self, count: int, stride: int, offset: int, width: int) -> npt.NDArray[np.uint8]:
        first = self.address + self.start + offset
        with driver().inside(self._context):
            return driver().download_rows(first, stride, width, count, width).reshape(count, width)


class DriverMemory:
    """Device memory straight from the driver."""

    def allocate(self, nbytes: int, stream: int | None) -> Buffer:
        try:
            return DriverBuffer(nbytes, stream or 0)
        except WarplensError as error:
            raise MemoryError(str(error)) from None

    def budget(self) -> int:
        return int(driver().total_memory() * BUDGET_SHARE)

    def device_index(self) -> int:
        return driver().device_index()

    def device(self) -> Device:
        return driver().device()
