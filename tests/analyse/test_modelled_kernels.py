"""Findings about kernels of a timing model, with a known cause or with nothing to repair: names, gains, silence."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from tests.support.modelled_families import FAMILIES, verdicts
from tests.support.modelled_gpu import DEVICES, run_modelled
from tests.support.modelled_kernels import Planted
from warplens.analyse.findings import findings

SEEDS = 8
QUICK = (
    *("memory_bound_few_warps", "conflicts_that_do_not_matter", "spread_atomics", "copies_by_one_thread"),
    *("cached_latency", "ring_by_one_lane", "rounds_in_one_region", "two_causes"),
)
"""Families that fooled the findings when they were first tried."""


def judged(name: str, seed: int) -> Counter[str]:
    """What is right and wrong about one kernel of a family."""
    device = DEVICES[seed % len(DEVICES)]
    planted: Planted = FAMILIES[name](random.Random(f"{name} {seed}"), device)
    trace, took = run_modelled(planted.broken, device)
    repaired, gain = None, None
    if planted.repaired is not None:
        after, less = run_modelled(planted.repaired, device)
        repaired, gain = findings(after)[0], 1 - less / took
    return verdicts(planted, findings(trace)[0], repaired, gain)


@pytest.mark.parametrize("name", QUICK)
def test_a_modelled_kernel_is_judged_by_its_physics(name: str) -> None:
    found = judged(name, 1)
    assert (found["named"], found["inside"], found["quiet"]) == (found["broken"], found["gains"], found["healthy"])


@pytest.mark.slow  # hundreds of modelled kernels
@pytest.mark.parametrize("name", FAMILIES)
def test_the_first_finding_of_a_family_names_its_cause(name: str) -> None:
    total = sum((judged(name, seed) for seed in range(SEEDS)), Counter[str]())
    assert total["named"] >= 0.9 * total["broken"]
    assert total["quiet"] >= 0.9 * total["healthy"]
    assert total["inside"] >= 0.8 * total["gains"]
