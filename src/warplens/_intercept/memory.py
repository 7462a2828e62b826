"""Device memory straight from the driver, with the face of `_triton.memory`."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from warplens._cuda.driver import driver
from warplens._triton.memory import BUDGET_SHARE
from warplens.errors import WarplensError

if TYPE_CHECKING:
    from warplens.session import Profile


class Buffer:
    """Zeroed device bytes that are given back when nobody holds them any more."""

    def __init__(self, nbytes: int, stream: int) -> None:
        lib = driver()
        self.nbytes, self.start = nbytes, 0
        self.address = lib.allocate(nbytes)
        weakref.finalize(self, lib.free, self.address).atexit = False
        lib.clear(self.address, nbytes, stream)

    def align(self, alignment: int) -> int:
        """The first aligned address, where the tracks start."""
        self.start = -self.address % alignment
        return self.address + self.start

    def synchronize(self) -> None:
        driver().synchronize()

    def rows(self, count: int, stride: int, offset: int, width: int) -> npt.NDArray[np.uint8]:
        """Bytes [offset, offset + width) of each of `count` tracks, on the host."""
        first = self.address + self.start + offset
        return driver().download_rows(first, stride, width, count, width).reshape(count, width)


def allocate(nbytes: int, stream: int | None) -> Buffer:
    """Zeroed bytes, ordered before the launch on `stream`."""
    try:
        return Buffer(nbytes, stream or 0)
    except WarplensError as error:
        raise MemoryError(str(error)) from None


def budget() -> int:
    return int(driver().total_memory() * BUDGET_SHARE)


def describe(profile: Profile) -> None:
    """Say which device ran, once per profile."""
    if not profile.device.sm_count:
        profile.device = driver().device()
