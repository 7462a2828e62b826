"""Ranges of launches cover all launches once, in their order."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from warplens.decode import launch_ranges
from warplens.decode.launch_ranges import each_cache_sized


@pytest.mark.parametrize(
    "counts", [[], [0], [5], [0, 0, 0], [4, 4, 4, 4], [100, 1, 1], [1, 1, 100], [0, 30, 0, 0, 30, 0], [3] * 50]
)
def test_each_launch_is_in_one_range(counts: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch_ranges, "_TRACKS_AT_ONCE", 8)
    bounds = np.append(0, np.cumsum(counts)).astype(np.int64)
    found = each_cache_sized(bounds, lambda begin, end: (begin, end))
    assert [launch for begin, end in found for launch in range(begin, end)] == list(range(len(counts)))
    assert all(one[1] == other[0] for one, other in pairwise(found))
    # A range ends with the launch that makes it large enough.
    assert all(bounds[end - 1] - bounds[begin] < 8 for begin, end in found)
