"""Memory is handed out once, aligned, and comes back whole, whatever the order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens.launch.free_ranges import FreeRanges

STEPS = st.lists(
    st.tuples(st.booleans(), st.integers(1, 900), st.sampled_from([1, 8, 128, 256]), st.integers(0, 50)), max_size=60
)


@given(STEPS, st.sampled_from([0, 96, 4096]))
def test_nothing_is_handed_out_twice_and_nothing_is_lost(steps: list, start: int) -> None:
    ranges, taken = FreeRanges(start, 4096), []
    for takes, size, alignment, which in steps:
        if takes or not taken:
            address = ranges.take(size, alignment)
            if address is None:
                used = sum(size for _, size in taken)
                assert used or size + alignment > 4096, "an empty stretch holds what fits it"
                continue
            assert address % alignment == 0
            assert start <= address
            assert address + size <= start + 4096
            assert all(address + size <= at or at + length <= address for at, length in taken)
            taken.append((address, size))
        else:
            ranges.give(*taken.pop(which % len(taken)))
    for one in taken:
        ranges.give(*one)
    assert ranges.take(4096, 1) == start, "all of it is free again, in one piece"


def test_what_was_not_taken_cannot_come_back() -> None:
    ranges = FreeRanges(0, 1024)
    at = ranges.take(256, 256)
    assert at == 0
    for start, size in ((256, 256), (0, 512), (-256, 256), (1024, 8)):
        with pytest.raises(ValueError, match="was not taken"):
            ranges.give(start, size)
    ranges.give(0, 256)
    with pytest.raises(ValueError, match="was not taken"):
        ranges.give(0, 256)
