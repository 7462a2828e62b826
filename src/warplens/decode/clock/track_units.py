"""The launch and the SM of each track, which together are a unit of the clock fit; in C or with numpy.

A profile may have a million tracks, so each pass over all of them counts when it ends.
"""

from __future__ import annotations

import ctypes
from functools import cached_property

import numpy as np
import numpy.typing as npt

from warplens.native import load, pointer

Int64 = npt.NDArray[np.int64]
Bool = npt.NDArray[np.bool_]
_FIBONACCI = 2654435761
"""Multiples of this, modulo 2^32, are evenly spread, so that any range of tracks contributes its share."""


class TrackUnits:
    """Those of launch i are `bounds[i]` to `bounds[i + 1]`."""

    def __init__(self, bounds: Int64, sm: Int64) -> None:
        self.bounds, self.sm = np.ascontiguousarray(bounds), np.ascontiguousarray(sm)
        self.launches, self.sms = len(bounds) - 1, int(sm.max(initial=-1)) + 1
        self._library = load()

    def __len__(self) -> int:
        return len(self.sm)

    @cached_property
    def counts(self) -> Int64:
        """The number of each launch's tracks."""
        return np.diff(self.bounds)

    @cached_property
    def there(self) -> Bool:
        """Whether each launch, which has a row, ran on each SM."""
        found = np.zeros((self.launches, self.sms), bool)
        if self._library is None:
            found[self._launch, self.sm] = True
        else:
            self._library.wl_units_there(*self._places(), pointer(found))
        return found

    def look_up(self, table: npt.NDArray[np.int32]) -> Int64:
        """For each track, what a table with a row for each launch has for its SM."""
        if self._library is None:
            return np.asarray(table[self._launch, self.sm], np.int64)
        found = np.empty(len(self), np.int64)
        self._library.wl_units_look_up(*self._places(), pointer(table), pointer(found))
        return found

    def some(self, share: npt.NDArray[np.float64]) -> Int64:
        """About this share of each launch's tracks; all of them where it is 1."""
        limit = np.minimum(share * 2.0**32, 2.0**32 - 1).astype(np.uint32)
        if self._library is None:
            spread = np.arange(len(self), dtype=np.uint32) * np.uint32(_FIBONACCI)
            return np.flatnonzero(spread < limit[self._launch])
        found, spread_by = np.empty(len(self) + 1, np.int64), ctypes.c_uint32(_FIBONACCI)
        self._library.wl_spread_tracks.restype = ctypes.c_int64
        of, launches = pointer(self.bounds), ctypes.c_int64(self.launches)
        count = self._library.wl_spread_tracks(of, launches, spread_by, pointer(limit), pointer(found))
        return found[:count]

    def of(self, launches: Bool) -> Int64:
        """The tracks of some launches."""
        return np.flatnonzero(np.repeat(launches, self.counts))

    @cached_property
    def _launch(self) -> Int64:
        return np.repeat(np.arange(self.launches), self.counts)

    def _places(self) -> tuple[object, ...]:
        numbers = ctypes.c_int64(self.launches), ctypes.c_int64(self.sms)
        return pointer(self.bounds), numbers[0], pointer(self.sm), numbers[1]
