"""Findings about modelled kernels with the marks that authors choose for reasons of their own."""

from __future__ import annotations

import random
from collections import Counter
from functools import cache

import pytest

from tests.support.modelled_authors import AUTHORS, marked_by
from tests.support.modelled_families import FAMILIES, harmless, verdicts
from tests.support.modelled_gpu import DEVICES, Modelled, Ran, recorded, run_model
from tests.support.modelled_kernels import Planted
from warplens.analyse.finding import UNDECIDED, UNMARKED_TIME, Finding
from warplens.analyse.findings import findings

DEVICE = DEVICES[1]
SEEDS = range(600, 602)


@cache
def planted(family: str, seed: int) -> Planted:
    found: Planted = FAMILIES[family](random.Random(f"{family} {seed}"), DEVICE)
    return found


@cache
def launched(kernel: str, seed: int, version: str) -> tuple[Modelled, Ran]:
    made: Modelled = getattr(planted(kernel, seed), version)
    return made, run_model(made, DEVICE)


def first(family: str, author: str, version: str = "broken", seed: int = 500) -> Finding:
    """The first finding about a kernel of a family with the marks of an author."""
    kernel, ran = marked_by(author, f"{family} {seed} {author}", *launched(family, seed, version))
    return findings(recorded(kernel, DEVICE, ran))[0]


@pytest.mark.parametrize(
    ("family", "author"),
    [
        # The load and the work of a round in one region.
        *(("too_little_in_flight", "loop_body"), ("cached_latency", "loop_body")),
        # Regions inside a region for the round.
        *(("too_little_in_flight", "nested"), ("cached_latency", "nested"), ("slow_consumer", "nested")),
        # Data that is waited for where it is used, with loads that are not marked.
        *(("too_little_in_flight", "consumers"), ("cached_latency", "consumers")),
        # Waits that are not marked, or inside a region that also copies or works.
        *(("slow_producer", "no_waits"), ("slow_consumer", "no_waits"), ("shallow_ring", "no_waits")),
        *(("slow_producer", "loop_body"), ("slow_consumer", "loop_body")),
        *(("slow_producer", "consumers"), ("slow_consumer", "consumers"), ("ring_by_one_lane", "consumers")),
        ("slow_consumer", "first_region"),
    ],
)
def test_the_cause_is_found_in_marks_that_do_not_show_it_by_name(family: str, author: str) -> None:
    assert first(family, author).kind == planted(family, 500).cause


@pytest.mark.parametrize(
    ("family", "author"),
    [
        *(("too_little_in_flight", "whole_loop"), ("cached_latency", "whole_loop"), ("slow_producer", "whole_loop")),
        *(("slow_consumer", "whole_loop"), ("shallow_ring", "whole_loop"), ("shallow_ring", "loop_body")),
        *(("warp_imbalance", "whole_loop"), ("warp_imbalance", "loop_body"), ("warp_imbalance", "with_barrier")),
        ("shallow_ring", "consumers"),
    ],
)
def test_marks_that_cannot_decide_name_what_is_likely_and_what_to_mark(family: str, author: str) -> None:
    found = first(family, author)
    assert found.kind == UNDECIDED
    assert planted(family, 500).cause in found.what
    assert found.advice.startswith("Mark the ")
    assert found.gain.low == 0


@pytest.mark.parametrize(
    ("family", "author", "version"),
    [
        # Enough is in flight to keep the memory busy, though few warps fit on an SM, or few SMs have blocks.
        *(("memory_bound_few_warps", "whole_loop", "broken"), ("memory_bound_few_warps", "consumers", "broken")),
        *(("too_few_blocks", "whole_loop", "broken"), ("too_few_blocks", "consumers", "broken")),
        # Atomics beside loads in a loop, conflicts outside all regions, copies outside all regions.
        *(("spread_atomics", "whole_loop", "broken"), ("conflicts_that_do_not_matter", "first_region", "broken")),
        *(("busy_ring", "consumers", "broken"), ("busy_ring", "first_region", "broken")),
        ("warp_imbalance", "loop_body", "repaired"),
    ],
)
def test_marks_that_hide_the_limit_give_no_false_first_finding(family: str, author: str, version: str) -> None:
    assert harmless(first(family, author, version))


def test_warps_without_marks_are_named() -> None:
    found = first("cached_latency", "one_warp")
    assert (found.kind, "Nothing is marked in warp" in found.what) == (UNMARKED_TIME, True)


@pytest.mark.parametrize("author", ["first_region", "no_prologue"])
def test_what_blocks_do_before_and_after_their_records_is_no_gap(author: str) -> None:
    assert harmless(first("block_imbalance", author, "repaired", 700))


def test_work_that_loads_outside_all_regions_pace_is_not_serialised() -> None:
    assert harmless(first("too_few_blocks", "consumers", "repaired", 501), planted("too_few_blocks", 501).remains)


@pytest.mark.slow  # thousands of traces of modelled kernels
@pytest.mark.parametrize("author", AUTHORS)
def test_no_author_gets_a_false_first_finding(author: str) -> None:
    total: Counter[str] = Counter()
    for family in FAMILIES:
        for seed in SEEDS:
            total.update(judged(family, author, seed))
    assert total["quiet"] >= 0.95 * total["healthy"]
    assert total["named"] + total["open"] >= 0.8 * total["broken"]


def judged(family: str, author: str, seed: int) -> Counter[str]:
    """What is right and wrong about a kernel and its repair; `open` counts what is left undecided or unmarked."""
    made, repaired, gain = planted(family, seed), None, None
    if made.repaired is not None:
        repaired = first(family, author, "repaired", seed)
        gain = 1 - launched(family, seed, "repaired")[1].took / launched(family, seed, "broken")[1].took
    return verdicts(made, first(family, author, "broken", seed), repaired, gain)
