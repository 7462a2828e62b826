"""What the code says of barriers decides what waits at them mean: an unneeded barrier, uneven warps, or neither."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import Span
from tests.support.kernel_traces import SMS, kernel, loop, rounds_with_barrier, verdict
from warplens.analyse.code_counts import CodeCounts
from warplens.analyse.findings import findings
from warplens.analyse.region_purpose import Purpose, purposes
from warplens.analyse.wait_classes import WaitClass, wait_class
from warplens.record.cost_keys import ALONE_CYCLES, SLOWDOWN

FREE = {"instructions": 1, "barriers": 1, "unneeded_barriers": 1}
NEEDED = {"instructions": 1, "barriers": 1, "needed_barriers": 1}
UNKNOWN = {"instructions": 1, "barriers": 1, "unknown_barriers": 1}


def taking_turns() -> list[Span]:
    """In each round every other warp has six times the work of the rest."""
    return rounds_with_barrier(lambda turn, warp: 6_000 if warp % 2 == turn % 2 else 1_000)


@pytest.mark.parametrize(
    ("work", "sync", "kind"),
    [
        ({"instructions": 90, "unbounded": 1}, FREE, "unneeded barrier"),
        ({"instructions": 90, "unbounded": 1}, {"instructions": 1, "barriers": 1}, "unneeded barrier"),
        ({"instructions": 90, "unbounded": 1}, NEEDED, "warp imbalance"),
        # Shared memory is written before it and read after it, at addresses that are known at run time.
        ({"instructions": 90, "unbounded": 1}, UNKNOWN, "warp imbalance"),
        ({"instructions": 90}, UNKNOWN, "unneeded barrier"),
    ],
)
def test_whether_data_passes_at_a_barrier_decides_what_its_waits_mean(
    work: dict[str, float], sync: dict[str, float], kind: str
) -> None:
    found = findings(kernel(taking_turns(), {"walk": work, "sync": sync}))
    assert found[0].kind == kind
    passes = kind == "warp imbalance"
    assert verdict(found, "unneeded barrier").verdict == ("refuted" if sync is NEEDED else "supported")
    assert ("No shared memory passes" in found[0].what) == (sync is FREE)
    if passes:
        assert (found[0].region, "from round to round" in found[0].what) == ("walk", True)


def test_warps_with_the_same_work_are_not_uneven_at_a_barrier_that_is_needed() -> None:
    """What they wait there are latencies: the code of each round has the same length for all."""
    found = findings(kernel(taking_turns(), {"walk": {"instructions": 90}, "sync": NEEDED}))
    assert verdict(found, "warp imbalance").verdict == "refuted"
    assert verdict(found, "unneeded barrier").verdict == "refuted"


def test_loads_that_take_turns_at_the_memory_are_no_uneven_work() -> None:
    """Of each block, the same warp gets its data last; all of them run the same loads."""
    spans = rounds_with_barrier(lambda turn, warp: 1_000 + 700 * warp)
    counts = {"instructions": 16, "loads": 4, "load_bytes": 64, "fetch_bytes": 2_048, "moved_bytes": 2_048}
    found = findings(kernel(spans, {"walk": counts, "sync": NEEDED}))
    assert verdict(found, "warp imbalance").verdict == "refuted"
    rows = findings(kernel(spans, {"walk": {**counts, "loops": 1, "unbounded": 1}, "sync": NEEDED}))
    assert verdict(rows, "warp imbalance").verdict == "supported", "rows of unknown length"


def test_what_the_code_says_of_a_barrier_is_no_effect_of_the_marks() -> None:
    """Marks that double the kernel's time withhold what is only seen, not what the code shows."""
    for sync, withheld in ((FREE, False), ({"instructions": 1, "barriers": 1}, True)):
        trace = kernel(taking_turns(), {"walk": {"instructions": 90, "unbounded": 1}, "sync": sync})
        launches = tuple(replace(one, cost={SLOWDOWN: 4.0}) for one in trace.meta.launches)
        trace.meta = replace(trace.meta, launches=launches)
        assert bool(verdict(findings(trace), "unneeded barrier").withheld) == withheld


def test_how_much_of_a_loop_of_unknown_length_its_barrier_takes_is_not_known() -> None:
    code = {"instructions": 80, "barriers": 1, "unneeded_barriers": 1, "loops": 1, "unbounded": 1}
    one = verdict(findings(kernel(loop({"step": 2_000}, rounds=20, warps=8), {"step": code})), "unneeded barrier")
    assert (one.verdict, one.gain.low) == ("supported", 0.0)


def test_late_blocks_whose_warps_wait_for_one_of_theirs_are_not_what_is_uneven() -> None:
    spans = [*loop({"walk": 4_000, "sync": 100}, rounds=4, warps=8)]
    for warp in range(8):
        own = 40_000 if warp == 3 else 2_000
        spans += [Span("walk", 16_400, own, 0, warp), Span("sync", 16_400 + own, 40_100 - own, 0, warp)]
    found = findings(kernel(spans, {"walk": {"instructions": 90, "unbounded": 1}, "sync": NEEDED}))
    assert verdict(found, "block imbalance").verdict == "refuted"
    assert "uneven are the warps" in verdict(found, "block imbalance").what


def test_what_a_region_takes_beyond_its_work_is_that_of_its_unneeded_barriers() -> None:
    """64 warps of an SM: 80 instructions need 1,280 cycles of their scheduler, and nothing else is known to take
    4,000."""
    spans = loop({"fold": 2_000}, rounds=20, warps=64)
    code = {"instructions": 80, "barriers": 10, "unneeded_barriers": 6, "needed_barriers": 4, "shared": 4, "ways": 1}
    found = findings(kernel(spans, {"fold": code}))
    assert (found[0].kind, found[0].region) == ("unneeded barrier", "fold")
    assert "10 barriers each time, and at 6 of them" in found[0].what
    assert found[0].gain.low < 0.5 < found[0].gain.high <= 1 - 1_280 / 4_000 / 0.9 + 0.01
    needed = {**code, "unneeded_barriers": 0, "needed_barriers": 10}
    assert verdict(findings(kernel(spans, {"fold": needed})), "unneeded barrier").verdict == "refuted"
    few = findings(kernel(loop({"fold": 150}, rounds=20, warps=4), {"fold": {**code, "shared": 1}}))
    assert verdict(few, "unneeded barrier").verdict == "refuted", (
        "80 instructions, one after the other, take 300 cycles"
    )
    longer = {**code, "instructions": 250}
    assert verdict(findings(kernel(spans, {"fold": longer})), "unneeded barrier").verdict == "refuted", "it is its work"
    conflicts = {**code, "ways": 16, "conflicts": 60}
    assert findings(kernel(spans, {"fold": conflicts}))[0].kind == "bank conflicts", "these take all of the time"


def test_a_free_barrier_beside_a_needed_one_is_not_what_late_warps_cost() -> None:
    """Warps end rounds of unequal length in a region with a barrier that is needed and one that is not: without the
    latter they wait as long. Marked as work, it is little else than their wait."""
    both = {"instructions": 13, "shared": 1, "ways": 1, "stores": 1, "barriers": 2}
    both |= {"needed_barriers": 1, "unneeded_barriers": 1}
    spans = rounds_with_barrier(lambda turn, warp: 90_000 if warp == 7 else 10_000, "fold")
    walk = {"instructions": 90, "loops": 1, "unbounded": 1, "lengths_known": 1, "uneven_warps": 1}
    found = findings(kernel(spans, {"walk": walk, "fold": both}))
    assert (found[0].kind, found[0].region) == ("warp imbalance", "walk")
    assert found[0].gain.low < 1 - 20 / 90 < found[0].gain.high, "all warps in 20,000 cycles instead of 90,000"
    assert verdict(found, "unneeded barrier").verdict == "refuted"
    even = findings(kernel(spans, {"walk": {"instructions": 90}, "fold": both}))
    assert verdict(even, "warp imbalance").verdict == "refuted", "the same work in each round"


def test_what_marks_take_is_no_work_of_the_busiest_warp() -> None:
    """1,000 of the 4,000 cycles that each warp works in a round are those of its two spans' records."""
    gains = []
    for cost in ({}, {ALONE_CYCLES: 250.0, SLOWDOWN: 1.1}):
        trace = kernel(rounds_with_barrier(lambda turn, warp: 3_000 if warp == turn % 8 else 1_000))
        launches = tuple(replace(one, cost=cost) for one in trace.meta.launches)
        trace.meta = replace(trace.meta, launches=launches)
        gains.append(verdict(findings(trace), "unneeded barrier").gain.middle)
    assert gains[1] > gains[0]


def test_conflicts_that_keep_shared_memory_busy_explain_waits_at_barriers() -> None:
    spans = rounds_with_barrier(lambda turn, warp: 2_000 + 500 * ((turn + warp) % 8))
    work = {"instructions": 80, "shared": 30, "ways": 32, "conflicts": 930}
    found = findings(kernel(spans, {"walk": work, "sync": {"instructions": 1, "barriers": 1}}))
    assert found[0].kind == "bank conflicts"
    assert "unneeded barrier" not in [one.kind for one in found]


@pytest.mark.parametrize("name", ["turn", "lock step", "tile"])
def test_work_between_barriers_is_no_wait_for_a_turn(name: str) -> None:
    """A tile that is written and read in shared memory, with a barrier after each: nothing there could try a lock."""
    counts = CodeCounts.of({"instructions": 5, "shared": 2, "barriers": 2, "needed_barriers": 2})
    assert purposes(["part"], code={"part": counts}) == [Purpose.OTHER]
    assert wait_class(name, counts) is WaitClass.BARRIER
    spans = loop({"turn": 600}, rounds=40, blocks=4 * SMS, warps=8)
    found = findings(kernel(spans, {"turn": {"instructions": 5, "shared": 2, "ways": 1, "barriers": 2}}))
    assert verdict(found, "serialised section").verdict == "refuted"
