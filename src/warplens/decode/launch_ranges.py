"""Passes over the tracks of thousands of launches, in ranges whose arrays fit a processor's cache.

Arrays of all tracks would be memory that is touched for the first time, which takes longer than what is computed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import TypeVar

import numpy as np
import numpy.typing as npt

_TRACKS_AT_ONCE = 1 << 15
_MOST_THREADS = 16
T = TypeVar("T")


def each_cache_sized(bounds: npt.NDArray[np.int64], work: Callable[[int, int], T]) -> list[T]:
    """What `work` gives for each range of launches, its first and the one after its last; several threads call it. The
    tracks of launch i are `bounds[i]` to `bounds[i + 1]`."""
    launches = len(bounds) - 1
    edges = np.searchsorted(bounds, np.arange(_TRACKS_AT_ONCE, bounds[-1], _TRACKS_AT_ONCE))
    ranges = list(pairwise(np.unique([0, *edges.tolist(), launches]).tolist()))
    if len(ranges) < 2:
        return [work(*span) for span in ranges]
    with ThreadPoolExecutor(min(len(ranges), os.cpu_count() or 1, _MOST_THREADS)) as pool:
        return list(pool.map(lambda span: work(*span), ranges))
