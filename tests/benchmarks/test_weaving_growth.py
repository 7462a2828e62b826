"""The time of parsing, marking and weaving is proportional to the size of the code."""

from __future__ import annotations

import cProfile

import pytest

from benchmarks.weaving_growth import cases
from tests.support import large_ptx
from tests.support.growth import growth

CASES = cases(every=False)
SMALL, LARGE = 100, 800
"""Eight times the size may take 18 times as long, because the machine may be busy; a quadratic step takes up to 64."""
CALLS = {"mark_ptx unmarked": 2000, "weave spread kernels": 1900, "weave defer functions": 1200}
"""The most function calls per unit of code (16 lines), kernel or function (23 lines each): they say what takes time on
any machine. Repeated passes over the code took 8,800, 2,900 and 1,700."""


@pytest.mark.parametrize("name", CASES)
def test_time_grows_with_the_size(name: str) -> None:
    shape, step = CASES[name]
    make = getattr(large_ptx, shape)
    assert any(growth(step, make(SMALL), make(LARGE), tries=tries) < 18 for tries in (2, 4, 8))


@pytest.mark.parametrize(("name", "budget"), sorted(CALLS.items()))
def test_large_modules_take_few_calls(name: str, budget: int) -> None:
    shape, step = CASES[name]
    make = getattr(large_ptx, shape)
    step(make(3))  # what is computed once
    profile = cProfile.Profile()
    profile.runcall(step, make(SMALL))
    assert sum(entry.callcount for entry in profile.getstats()) / SMALL < budget
