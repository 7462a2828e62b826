"""What the clocks of the SMs say now, while a kernel runs: from the starts of its warps and their newest records."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from warplens.record.layout import TrackState

Int64 = npt.NDArray[np.int64]
Headers = npt.NDArray[np.void]

LEAST_RECORDS = 4
"""A track that has written fewer slots since the last look says nothing about the clock's rate."""
LEAST_NS = 100_000
"""Shorter lives say too little about the rate."""
_SLOWEST = 0.25
"""Of the nominal rate: a slower clock is taken for a warp that writes rarely."""
_LOW, _HALF = 1 << 32, 1 << 31


class RunningClocks:
    """The rate of one launch's clocks, in cycles per ns. A record keeps 32 bits of the clock, so `update` must be
    called every second while the kernel runs."""

    def __init__(self, tracks: int, nominal_mhz: float) -> None:
        self.rate = self._nominal = (nominal_mhz or 1000.0) / 1000.0
        self._latest = np.zeros(tracks, np.int64)
        """The clock of each track's newest record; 0 before the first."""

    def expected(self, headers: Headers, now_ns: int) -> Int64:
        """What the clock of each track's SM is expected to say now."""
        lived = np.maximum(now_ns - headers["start_ns"].astype(np.int64), 0)
        return headers["start_clock"].astype(np.int64) + (lived * self.rate).astype(np.int64)

    def update(self, headers: Headers, newest: Int64, added: Int64, now_ns: int) -> tuple[Int64, Int64]:
        """Learn the rate; return the clock of each track's newest record, and that of its SM now, which is not before
        any record of that SM.

        `newest` has the low bits of the newest clock of each track, and `added` the slots since last time. A record
        that was added since then is so young that its clock is the one next to the expected one.
        """
        expected = self.expected(headers, now_ns)
        nearest = expected + (newest - expected + _HALF) % _LOW - _HALF
        self._latest = np.where(added > 0, nearest, self._latest)
        latest = np.maximum(self._latest, headers["start_clock"].astype(np.int64))
        self._learn(headers, latest, added >= LEAST_RECORDS, now_ns)
        return latest, np.maximum(self.expected(headers, now_ns), _highest(headers["sm"], latest))

    def _learn(self, headers: Headers, latest: Int64, busy: npt.NDArray[np.bool_], now_ns: int) -> None:
        starts = headers["start_ns"].astype(np.int64), headers["start_clock"].astype(np.int64)
        exited = headers["state"] == TrackState.EXITED
        until = np.where(exited, headers["exit_ns"].astype(np.int64), now_ns)
        clock = np.where(exited, headers["exit_clock"].astype(np.int64), latest)
        lived = until - starts[0]
        for known in (busy & ~exited, exited):
            useful = known & (lived >= LEAST_NS)
            if useful.any():
                rate = float(((clock - starts[1])[useful] / lived[useful]).max())
                if rate >= _SLOWEST * self._nominal:
                    self.rate = rate
                    return


def _highest(sm: npt.NDArray[np.uint32], clock: Int64) -> Int64:
    """For each track, the highest of the clocks of its SM."""
    names, of = np.unique(sm, return_inverse=True)
    most = np.full(len(names), np.iinfo(np.int64).min)
    np.maximum.at(most, of, clock)
    return most[of]
