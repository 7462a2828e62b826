"""Quantiles from buckets stay within the stated error of the exact ones, whatever was counted and however divided."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from warplens.analyse.quantile_sketch import ERROR, buckets_of, middles, quantiles

SHARES = (0.0, 0.01, 0.25, 0.5, 0.95, 0.99, 1.0)


def sketched(numbers: np.ndarray, whole: bool) -> list[float]:
    buckets, counts = np.unique(buckets_of(numbers), return_counts=True)
    return quantiles(buckets, counts, SHARES, numbers.min(), numbers.max(), whole=whole)


@given(st.lists(st.integers(0, (1 << 53) - 1) | st.integers(0, 5_000), min_size=1, max_size=60))
def test_durations(numbers: list[int]) -> None:
    exact = np.quantile(np.array(numbers), SHARES)
    assert (np.abs(sketched(np.array(numbers), whole=True) - exact) <= ERROR * exact + 1e-9).all()


@given(st.lists(st.floats(1e-300, 1e300), min_size=1, max_size=60))
def test_values(numbers: list[float]) -> None:
    exact = np.quantile(np.array(numbers), SHARES)
    assert (np.abs(sketched(np.array(numbers), whole=False) - exact) <= ERROR * exact * (1 + 1e-9)).all()


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=40))
def test_buckets_are_in_the_order_of_the_numbers(numbers: list[float]) -> None:
    ordered = buckets_of(np.sort(np.array(numbers)))
    assert (np.diff(ordered) >= 0).all()


def test_the_bound_is_tight_and_small_whole_numbers_are_exact() -> None:
    numbers = np.arange(1 << 20)
    error = np.abs(middles(buckets_of(numbers), whole=True) - numbers)
    assert error[:128].max() == 0
    assert 0.98 * ERROR < (error[1:] / numbers[1:]).max() <= ERROR


def test_negative_values_and_both_zeros() -> None:
    numbers = np.array([-8.0, -3.5, -0.0, 0.0, 2.25])
    assert middles(buckets_of(numbers), whole=False) == pytest.approx(numbers, rel=ERROR, abs=1e-300)
    assert len(set(buckets_of(np.array([-0.0, 0.0])).tolist())) == 1
