"""The durations of one group of spans: how often each short one occurred, and the longer ones themselves."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Int = npt.NDArray[Any]


class DurationCounts:
    """Exact statistics of any number of durations, most of which are short."""

    def __init__(self, shares: Int, longer: Sequence[Int]) -> None:
        """`shares[d]` counts durations d; `longer` are all that are not below the length of `shares`."""
        self._values = np.flatnonzero(shares)
        self._shares = shares[self._values]
        self._upto = np.cumsum(self._shares)
        self._longer = np.concatenate([np.zeros(0, np.int64), *longer])
        self.count = int(self._shares.sum()) + len(self._longer)
        self.total = int((self._values * self._shares).sum()) + int(self._longer.sum())

    @staticmethod
    def joined(parts: Sequence[DurationCounts]) -> DurationCounts:
        """All durations of several groups together."""
        most = max((int(part._values[-1]) + 1 for part in parts if len(part._values)), default=0)
        shares = np.zeros(most, np.int64)
        for part in parts:
            shares[part._values] += part._shares
        return DurationCounts(shares, [part._longer for part in parts])

    @staticmethod
    def of(durations: Int) -> DurationCounts:
        """Those of an array."""
        return DurationCounts(np.zeros(0, np.int64), [durations])

    def histogram(self, edges: Int) -> Int:
        """What `numpy.histogram` counts between these edges."""
        short, _ = np.histogram(self._values, edges, weights=self._shares)
        return np.asarray(short.astype(np.int64) + np.histogram(self._longer, edges)[0])

    @property
    def mean(self) -> float:
        return self.total / self.count

    @property
    def least(self) -> int:
        return int(self._values[0] if len(self._values) else self._longer.min())

    @property
    def most(self) -> int:
        return int(self._longer.max() if len(self._longer) else self._values[-1])

    def std(self) -> float:
        """The standard deviation."""
        mean = self.mean
        squares = float((np.square(self._values - mean) * self._shares).sum()) + float(
            np.square(self._longer - mean).sum()
        )
        return math.sqrt(squares / self.count)

    def percentiles(self, wanted: Sequence[float]) -> list[float]:
        """What `numpy.percentile` gives: linear between the two nearest durations."""
        places = [share / 100 * (self.count - 1) for share in wanted]
        ranks = sorted({rank for place in places for rank in (math.floor(place), math.ceil(place))})
        known = dict(zip(ranks, self._ranked(ranks), strict=True))
        found = []
        for place in places:
            low, high, part = known[math.floor(place)], known[math.ceil(place)], place % 1
            found.append(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))
        return found

    def _ranked(self, ranks: list[int]) -> list[float]:
        """The durations of these ranks, from 0 for the shortest."""
        short = int(self._upto[-1]) if len(self._upto) else 0
        beyond = [rank - short for rank in ranks if rank >= short]
        among_longer = np.partition(self._longer, beyond) if beyond else self._longer
        return [
            float(
                self._values[np.searchsorted(self._upto, rank, side="right")]
                if rank < short
                else among_longer[rank - short]
            )
            for rank in ranks
        ]


def relative_range(means: Int) -> float:
    """(largest - smallest) / mean of the means of several warps or SMs."""
    middle = float(means.mean())
    return float((means.max() - means.min()) / middle) if middle else 0.0
