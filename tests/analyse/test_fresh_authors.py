"""Findings about kernels that nobody tuned for: locks, rings that work, last steps, nested regions, several causes."""

from __future__ import annotations

import random

import pytest

from tests.support.builders import Span
from tests.support.kernel_traces import SMS, kernel, rounds_with_barrier, verdict
from tests.support.modelled_gpu import DEVICES, recorded, run_model, run_modelled
from tests.support.modelled_kernels import Planted
from tests.support.modelled_strangers import FREE, STRANGERS
from warplens.analyse.findings import Findings, findings
from warplens.trace.model import Trace

NEEDED = {"instructions": 1, "barriers": 1, "needed_barriers": 1}
TRY = {"instructions": 9, "atomics": 1, "barriers": 2, "needed_barriers": 2}


@pytest.mark.parametrize("name", STRANGERS)
def test_the_cause_of_a_strangers_kernel_is_named_with_its_gain(name: str) -> None:
    device = DEVICES[1]
    planted: Planted = STRANGERS[name](random.Random(f"{name} 1"), device)
    assert planted.repaired is not None
    (trace, took), (_, less) = (run_modelled(one, device) for one in (planted.broken, planted.repaired))
    first = findings(trace)[0]
    assert first.kind == planted.cause
    assert first.gain.low <= 1 - less / took <= first.gain.high


def test_latency_is_placed_at_the_loads_and_not_at_a_store_after_them() -> None:
    device = DEVICES[1]
    made = STRANGERS["store_after_the_loop"](random.Random("7"), device).broken
    ran = run_model(made, device)
    assert findings(recorded(made, device, ran))[0].region == "sample"
    # Inside a region for the frame and one for each ray, which are about nothing themselves.
    for track in ran.tracks:
        track.steps[:] = [(f"frame/ray/{name}", begin, end) for name, begin, end in track.steps]
    assert findings(recorded(made, device, ran))[0].region == "sample"


def tries(between: dict[str, float] | None, alike: bool = False) -> Findings:
    """Blocks that work, try a lock until it is theirs, and update: the last one waits for all others."""
    spans = []
    for block in range(SMS):
        at = 20_000
        spans.append(Span("work", 0, at, block, sm=block))
        for _ in range(120 if alike else 1 + block):
            spans += [Span("try", at, 900, block, sm=block), Span("look", at + 900, 50, block, sm=block)]
            at += 950
        spans.append(Span("update", at, 800, block, sm=block))
    code = {"work": {"instructions": 900, "loads": 9}, "try": TRY, "update": {"instructions": 90, "atomics": 1}}
    return findings(kernel(spans, code | ({"look": between} if between else {})))


def test_blocks_that_try_a_lock_queue_and_are_not_uneven() -> None:
    found = tries(None)
    assert (found[0].kind, found[0].region) == ("serialised section", "try")
    assert found[0].gain.high > 0.8
    assert "queue" in verdict(found, "block imbalance").what


@pytest.mark.parametrize(
    ("between", "alike"),
    [
        ({"instructions": 30, "loads": 1, "load_bytes": 4}, False),  # takes a task and works on it
        ({"instructions": 200}, False),
        (None, True),  # counts as often in each block
    ],
)
def test_atomics_in_a_loop_that_works_are_no_lock(between: dict[str, float] | None, alike: bool) -> None:
    assert verdict(tries(between, alike), "serialised section").region != "try"


def uneven(longest: float, code: dict[str, float], blocks: int = SMS) -> Findings:
    """Blocks that run the same regions equally often, of which some take longer."""
    spans = []
    for block in range(blocks):
        each = int(1_000 * (longest if block % 4 == 0 else 1))
        spans += [Span("multiply", turn * each, each, block, warp, sm=block) for warp in range(4) for turn in range(9)]
    return findings(kernel(spans, {"multiply": code}))


def test_blocks_that_run_the_same_and_wait_for_memory_are_not_uneven() -> None:
    waits = {"instructions": 38, "waits": 1, "barriers": 1, "matrix": 7}
    assert verdict(uneven(1.3, waits), "block imbalance").verdict == "refuted"
    assert verdict(uneven(3.0, waits), "block imbalance").verdict == "supported", "as with a branch that does more"
    assert verdict(uneven(1.3, {"instructions": 38}), "block imbalance").verdict == "supported"
    loops = {**waits, "loops": 1, "unbounded": 1, "lengths_known": 1, "uneven_blocks": 1}
    assert verdict(uneven(1.3, loops), "block imbalance").verdict == "supported"


def rounds(work: object, sync: dict[str, float], more: dict[str, dict[str, float]] | None = None) -> Trace:
    code = {"walk": {"instructions": 90, "unbounded": 1}, "sync": sync}
    return kernel(rounds_with_barrier(work), code | (more or {}))


def taking_turns(turn: int, warp: int) -> int:
    return 6_000 if warp % 2 == turn % 2 else 1_000


def test_a_needed_barrier_beside_a_free_one_keeps_warps_together() -> None:
    both = {"instructions": 3, "barriers": 2, "needed_barriers": 1, "unneeded_barriers": 1}
    found = findings(rounds(taking_turns, both))
    assert found[0].kind == "warp imbalance"
    assert verdict(found, "unneeded barrier").verdict == "refuted"


def test_a_free_barrier_somewhere_else_frees_no_other() -> None:
    elsewhere = {"begin": FREE, "end": {"instructions": 9, "unbounded": 1, "lengths_known": 1}}
    spans = [
        *(Span("begin", 0, 9, block, warp) for block in range(SMS) for warp in range(8)),
        *(Span(one.region, one.start + 9, one.dur, one.block, one.warp) for one in rounds_with_barrier(taking_turns)),
    ]
    spans.sort(key=lambda one: (one.block, one.warp, one.start))
    code = {
        "walk": {"instructions": 90, "unbounded": 1},
        "sync": {**NEEDED, "needed_barriers": 0, "unknown_barriers": 1},
    }
    assert findings(kernel(spans, code | elsewhere))[0].kind == "warp imbalance"
    # Recordings in the order of the text called the outer one of two free; this one is passed ten times as often.
    del elsewhere["end"]
    first = findings(kernel(spans, code | elsewhere))[0]
    assert (first.kind, first.region, first.gain.low) == ("unneeded barrier", "sync", 0.0)


def test_a_region_that_never_ran_has_no_barrier_that_costs_time() -> None:
    found = findings(rounds(taking_turns, NEEDED, {"never": {**FREE, "instructions": 99, "shared": 9}}))
    assert found[0].kind == "warp imbalance"


def test_a_free_barrier_comes_first_and_uneven_lives_are_what_remains() -> None:
    """In each round another warp is late, and one of them has more work in all rounds."""
    found = findings(rounds(lambda turn, warp: taking_turns(turn, warp) + (1_000 if warp == 5 else 0), FREE))
    assert [one.kind for one in found[:2]] == ["unneeded barrier", "warp imbalance"]
    assert not found[0].consequences
    assert list(found[1].warps)[:1] == [5]


def ring(produce: dict[str, float], use: dict[str, float], names: tuple[str, str] = ("wait a", "wait b")) -> Findings:
    """Warp 4 makes a vector every 900 cycles; warps 0 to 3 wait 700 of them for it."""
    spans = []
    for block in range(SMS):
        for turn in range(20):
            at = 900 * turn
            spans += [Span(names[0], at, 20, block, 4), Span("make", at + 20, 880, block, 4)]
            for warp in range(4):
                spans += [Span(names[1], at, 700, block, warp), Span("take", at + 700, 200, block, warp)]
    spans.sort(key=lambda one: (one.block, one.warp, one.start))
    wait = {"instructions": 9, "waits": 1}
    return findings(kernel(spans, {names[0]: wait, names[1]: wait, "make": produce, "take": use}))


LOADS = {"instructions": 477, "loads": 16, "load_bytes": 64, "fetch_bytes": 1_280, "moved_bytes": 1_280, "shared": 64}
ADDS = {"instructions": 41, "shared": 16, "ways": 1}


def test_a_producer_may_work() -> None:
    for found in (ring(LOADS, ADDS), ring({"instructions": 477}, ADDS, ("wait for slot", "wait for vector"))):
        first = found[0]
        assert (first.kind, list(first.warps)) == ("slow producer", [4])
        assert first.gain.low < 0.5 < first.gain.high, "a second one beside it saves half of its time"


@pytest.mark.parametrize(("produce", "use"), [(LOADS, LOADS), ({"instructions": 477}, ADDS)])
def test_warps_that_wait_for_others_are_no_consumers_without_a_direction(
    produce: dict[str, float], use: dict[str, float]
) -> None:
    assert verdict(ring(produce, use), "slow producer").verdict == "refuted"
