"""Barrier words at their limits and one past them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens.record.barrier_words import MAX_BARRIER, MAX_EXTRA, BarrierWord, Operation


@given(st.sampled_from(Operation), st.integers(0, MAX_BARRIER), st.integers(0, 1), st.integers(0, MAX_EXTRA))
def test_a_word_survives_packing_and_a_double(operation: Operation, barrier: int, parity: int, extra: int) -> None:
    word = BarrierWord(operation, barrier, parity, extra)
    assert BarrierWord.unpack(int(float(word.pack()))) == word


@pytest.mark.parametrize(
    ("barrier", "parity", "extra"), [(MAX_BARRIER + 1, 0, 0), (-1, 0, 0), (0, 2, 0), (0, 0, MAX_EXTRA + 1)]
)
def test_what_does_not_fit_is_refused(barrier: int, parity: int, extra: int) -> None:
    with pytest.raises(ValueError, match="outside|neither"):
        BarrierWord(Operation.ARRIVE, barrier, parity, extra).pack()


def test_the_largest_word_is_exact_as_a_double() -> None:
    largest = BarrierWord(Operation.MULTICAST, MAX_BARRIER, 1, MAX_EXTRA).pack()
    assert int(float(largest)) == largest < 1 << 53


def test_an_operation_of_a_newer_version_reads_as_nothing() -> None:
    assert BarrierWord.unpack(15 << 32 | 5).operation is Operation.NONE
