"""Findings about kernels whose regions have names that say nothing: the code of the regions decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import Span
from tests.support.kernel_traces import SMS, kernel, loop, verdict
from warplens.analyse.code_counts import CodeCounts
from warplens.analyse.findings import findings
from warplens.analyse.region_purpose import Purpose, purposes
from warplens.analyse.wait_classes import WaitClass, wait_class
from warplens.record.capture import MACHINE_CODE, VARIANT_LAUNCHES

BARRIER = {"instructions": 1, "barriers": 1}
WAIT = {"instructions": 3, "waits": 1}
POLL = {"instructions": 30, "polls": 1, "loads": 2, "barriers": 1}


@pytest.mark.parametrize(
    ("counts", "purpose"),
    [
        (BARRIER, Purpose.WAIT),
        (POLL, Purpose.WAIT),
        ({"instructions": 4, "waits": 1}, Purpose.WAIT),
        ({"instructions": 80, "barriers": 1, "shared": 9}, Purpose.OTHER),
        ({"instructions": 4, "barriers": 1, "stores": 1}, Purpose.MEMORY),
        ({"instructions": 3, "barriers": 1, "matrix": 1}, Purpose.OTHER),
    ],
)
def test_a_region_that_does_nothing_but_wait_is_a_wait(counts: dict[str, float], purpose: Purpose) -> None:
    assert purposes(["part 2"], code={"part 2": CodeCounts.of(counts)}) == [purpose]


def test_what_a_wait_waits_for_is_known_from_its_code() -> None:
    assert wait_class("A", CodeCounts.of(POLL)) is WaitClass.LOCK
    assert wait_class("A", CodeCounts.of(BARRIER)) is WaitClass.BARRIER
    assert wait_class("A", CodeCounts.of({**BARRIER, "waits": 1})) is WaitClass.DATA, "copies, then all warps"


def test_one_warp_that_works_for_all_is_an_imbalance() -> None:
    spans = []
    for block in range(SMS):
        for warp in range(8):
            own, at = 8_000 if warp == 0 else 1_000, 0
            for _ in range(4):
                spans += [
                    Span("x", at, own, block, warp, sm=block),
                    Span("y", at + own, 8_100 - own, block, warp, sm=block),
                ]
                at += 8_100
    first = findings(kernel(spans, {"x": {"instructions": 90}, "y": BARRIER}))[0]
    assert (first.kind, list(first.warps)) == ("warp imbalance", [0])


def test_a_chain_of_flags_is_serialised() -> None:
    spans = []
    for block in range(SMS):
        spans += [
            Span("A", 0, 1 + 1_000 * block, block, 0, sm=block),
            Span("B", 1 + 1_000 * block, 900, block, 0, sm=block),
        ]
    first = findings(kernel(spans, {"A": POLL, "B": {"instructions": 90}}))[0]
    assert (first.kind, first.region) == ("serialised section", "A")
    assert first.gain.low >= 0.5


def test_atomics_that_take_no_longer_than_alone_are_not_contended() -> None:
    code = {
        "get": {"instructions": 3, "loads": 1, "load_bytes": 4},
        "put": {"instructions": 40, "atomics": 1, "barriers": 2},
    }
    usual = findings(kernel(loop({"get": 14, "put": 700}), code))
    assert verdict(usual, "atomics contention").verdict == "refuted"
    queued = findings(kernel(loop({"get": 14, "put": 30_000}), code))
    assert queued[0].kind == "atomics contention"


def test_atomics_that_are_waited_for_do_not_slow_what_follows() -> None:
    code = {"take": {"instructions": 9, "atomics": 1, "barriers": 2}, "do": {"instructions": 90}}
    found = findings(kernel(loop({"take": 650, "do": 14_000}), code))
    assert verdict(found, "atomics contention").verdict == "refuted"


def test_spills_are_weighed_by_the_machine_code() -> None:
    few, many = {"fp32": 400, "load.local": 4}, {"tensor": 8, "load.local": 200, "store.local": 200}
    gains = []
    for counts in (few, many):
        trace = kernel(loop({"dot": 10_000, "load": 300}), registers=255, spills=7_000, **{MACHINE_CODE: "d"})
        region = {"region": "dot", "counts": counts, "kept": 1, "moved_in": 0, "moved_out": 0, "own": 0}
        trace.meta = replace(trace.meta, verification={"d": {"kernel": "kernel", "regions": [region]}})
        gains.append(verdict(findings(trace), "register spills").gain)
    assert gains[0].low < 0.05
    assert gains[1].low > 0.4
    assert gains[1].high > 0.9


def test_a_short_kernel_that_ran_once_promises_nothing_for_sure() -> None:
    spans = loop({"load": 500, "work": 500}, rounds=3)
    once, often = (findings(kernel(spans, **{VARIANT_LAUNCHES: ran})) for ran in (1, 50))
    assert verdict(once, "launch ramp").gain.low == 0
    assert verdict(often, "launch ramp").gain.low > 0.1


def test_what_is_known_comes_before_what_is_not_marked() -> None:
    """Two waves, the second of them with one block; nothing is marked but a short store."""
    spans = [Span("store", 10_000 * (block // SMS) + 9_900, 50, block, 0, sm=block % SMS) for block in range(SMS + 1)]
    lives = [Span("body", 10_000 * (block // SMS), 9_960, block, 0, sm=block % SMS) for block in range(SMS + 1)]
    assert findings(kernel(lives + spans))[0].kind == "last wave"


def test_conflicts_that_must_be_in_wide_accesses_promise_nothing_for_sure() -> None:
    counts = {"instructions": 100, "shared": 64, "ways": 32}
    found = findings(kernel(loop({"x": 1_000, "y": 3_000}, warps=8), {"y": counts}))
    one = verdict(found, "bank conflicts")
    assert (one.gain.low, one.evidence["lanes_per_bank"]) == (0.0, 8)


def test_a_leader_that_works_while_the_others_wait_at_the_barrier_is_an_imbalance() -> None:
    spans = []
    for block in range(SMS):
        for warp in range(8):
            for at in range(0, 32_400, 8_100):
                spans.append(Span("x", at, 900, block, warp, sm=block))
                if warp == 0:
                    spans.append(Span("z", at + 900, 7_100, block, warp, sm=block))
                    spans.append(Span("y", at + 8_000, 100, block, warp, sm=block))
                else:
                    spans.append(Span("y", at + 900, 7_200, block, warp, sm=block))
    first = findings(kernel(spans, {"x": {"instructions": 90}, "z": {"instructions": 90}, "y": BARRIER}))[0]
    assert (first.kind, first.region, list(first.warps)) == ("warp imbalance", "z", [0])


def test_one_warp_that_holds_a_lock_for_its_block_serialises() -> None:
    """The warp that waits for the lock has a small share of warp time; the others wait for it at a barrier."""
    spans = []
    for block in range(SMS):
        turn = 100 + 300 * block
        for warp in range(8):
            held = turn if warp == 0 else 0
            spans.append(Span("x", 0, 100, block, warp, sm=block))
            if held:
                spans.append(Span("p", 100, turn, block, warp, sm=block))
            spans.append(Span("y", 100 + held, 250 + turn - held, block, warp, sm=block))
    code = {"x": {"instructions": 90}, "p": {"instructions": 5, "polls": 1, "atomics": 1}, "y": BARRIER}
    assert findings(kernel(spans, code))[0].kind == "serialised section"


@pytest.mark.parametrize(("share", "at_roof"), [(0.1, False), (0.85, True)])
def test_a_kernel_whose_matrix_units_are_busy_has_nothing_to_fix(share: float, at_roof: bool) -> None:
    flops = share * 989.4e3 * 1_000 / SMS / 8  # per warp and round of 1,000 ns, of the peak for 16-bit operands
    code = {"mma": {"instructions": 20, "matrix": 4, "matrix_flops": flops}, "copy wait": WAIT}
    first = findings(kernel(loop({"copy wait": 400, "mma": 600}, rounds=32, warps=8), code))[0]
    assert ("compute bound" in first.what) == at_roof
