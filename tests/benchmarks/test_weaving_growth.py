"""The time of parsing, marking and weaving is proportional to the size of the code."""

from __future__ import annotations

import pytest

from benchmarks.weaving_growth import cases
from tests.support import large_ptx
from tests.support.growth import growth

CASES = cases(every=False)
SMALL, LARGE = 100, 800
"""Eight times the size may take 18 times as long, because the machine may be busy; a quadratic step takes up to 64."""


@pytest.mark.parametrize("name", CASES)
def test_time_grows_with_the_size(name: str) -> None:
    shape, step = CASES[name]
    make = getattr(large_ptx, shape)
    assert growth(step, make(SMALL), make(LARGE), tries=2) < 18
