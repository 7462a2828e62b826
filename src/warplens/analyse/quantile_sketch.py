"""Quantiles of numbers that are not kept: how many fell into each of a fixed set of buckets.

A bucket holds the doubles that share their sign, their exponent and the first six bits of their mantissa: 64 buckets
per power of two, so that a bucket that begins at `x` is `x / 64` wide at most. The middle of a bucket is within 1/128
(0.8 %) of every number in it, and so is a weighted mean of two such middles of the weighted mean of the numbers. Whole
numbers below 128 have a bucket of their own. Counts of buckets add up, so sketches of parts merge exactly: the sketch
of a dataset does not depend on how it was divided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

ERROR = 1 / 128
"""How far a quantile may be from the exact one, as a share of it."""
_SHIFT = 52 - 6
_SIGN = np.int64(-(1 << 63))

Array = npt.NDArray[Any]
Int = npt.NDArray[np.int64]
Float = npt.NDArray[np.float64]


def buckets_of(numbers: Array) -> Int:
    """The bucket of each number, by its bits; buckets are in the order of the numbers."""
    doubles = np.ascontiguousarray(numbers, np.float64) + 0.0  # -0.0 becomes 0.0
    bits = np.asarray(doubles.view(np.int64) >> _SHIFT)
    return np.where(bits < 0, (_SIGN >> _SHIFT) - bits - 1, bits)


def middles(buckets: Array, *, whole: bool) -> Float:
    """The number that stands for each bucket; `whole` if only whole numbers were counted."""
    codes = np.asarray(buckets, np.int64)
    size = np.where(codes < 0, -codes - 1, codes)
    low, high = ((size + step << _SHIFT).view(np.float64) for step in (0, 1))
    if whole:
        low, high = np.ceil(low), np.maximum(np.ceil(high) - 1, np.ceil(low))
    return np.where(codes < 0, -1.0, 1.0) * (low + high) / 2


def quantiles(
    buckets: Array, counts: Array, shares: Sequence[float], least: float, most: float, *, whole: bool = True
) -> list[float]:
    """The number below which each share of all numbers lies, as `numpy.quantile` defines it, within `ERROR`.

    `buckets` ascend, and `least` and `most` are the smallest and the largest number.
    """
    upto, at = np.cumsum(counts), np.clip(middles(buckets, whole=whole), least, most)
    last = int(upto[-1]) - 1

    def ranked(place: int) -> float:
        if place in (0, last):
            return float(most if place else least)
        return float(at[np.searchsorted(upto, place, side="right")])

    found = []
    for share in shares:
        place = share * last
        below, part = math.floor(place), place - math.floor(place)
        found.append(ranked(below) * (1 - part) + ranked(math.ceil(place)) * part)
    return found
