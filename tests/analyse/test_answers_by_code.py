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


def test_the_name_of_code_between_regions_says_nothing_about_its_purpose() -> None:
    names = ["work k.py:3-9", "work k.py:11", "work"]
    code = {name: CodeCounts(instructions=10, loads=4) for name in (names[0], names[2])}
    assert purposes(names, code=code) == [Purpose.MEMORY, Purpose.WORK, Purpose.WORK]


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


def test_an_mbarrier_is_no_lock_even_if_its_wait_is_called_acquire() -> None:
    assert wait_class("acquire", CodeCounts.of(WAIT)) is WaitClass.DATA
    assert wait_class("acquire", CodeCounts.of(POLL)) is WaitClass.LOCK
    assert wait_class("acquire") is WaitClass.LOCK


def test_a_lock_inside_a_region_serialises_it() -> None:
    """The region also works, so that its code is no mere wait; its atomics try the lock."""
    spans = [
        Span(name, at, lasted, block, 0, sm=block)
        for block in range(SMS)
        for name, at, lasted in (("scan", 0, 100), ("merge", 100, 500 + 300 * block))
    ]
    merge = {"instructions": 42, "loads": 3, "stores": 2, "atomics": 2, "barriers": 1, "polls": 1}
    first = findings(kernel(spans, {"scan": {"instructions": 40, "loads": 1}, "merge": merge}))[0]
    assert (first.kind, first.region) == ("serialised section", "merge")


def test_a_warp_with_more_work_than_the_others_serialises_nothing() -> None:
    spans = [
        Span("rows", (40 * warp if warp else 1_000), (100_000 if warp == 0 else 30), block, warp, sm=block)
        for block in range(SMS)
        for warp in range(8)
    ]
    assert findings(kernel(spans, {"rows": {"instructions": 40, "loads": 1}}))[0].kind == "warp imbalance"


def ring(stages: int, latency: int, work: int, rounds: int = 24) -> list[Span]:
    """A producer that issues copies into stages, and a consumer that works on each."""
    spans, ready, freed, at, done = [], [0] * rounds, [0] * rounds, 0, 0
    for turn in range(rounds):
        room = max(at, freed[turn - stages] if turn >= stages else 0)
        ready[turn] = room + 50 + latency
        begin = max(done, ready[turn])
        freed[turn] = begin + work
        for block in range(SMS):
            spans += [Span("acquire", at, room - at + 1, block, 0), Span("fetch", room + 1, 48, block, 0)]
            spans += [Span("receive", done, begin - done + 1, block, 1), Span("math", begin + 1, work - 2, block, 1)]
        at, done = room + 50, freed[turn]
    return spans


def test_two_sides_that_wait_for_one_another_need_more_stages() -> None:
    code = {
        "acquire": WAIT,
        "receive": WAIT,
        "fetch": {"instructions": 7, "copies": 1},
        "math": {"instructions": 70, "shared": 4, "ways": 1},
    }
    shallow, deep = (findings(kernel(ring(stages, 2_000, 1_000), code)) for stages in (1, 8))
    assert (shallow[0].kind, shallow[0].region) == ("too little in flight", "receive")
    assert shallow[0].gain.high == pytest.approx(2 / 3, abs=0.03), "more stages leave the time of the slower side"
    assert verdict(deep, "too little in flight").verdict == "refuted"


@pytest.mark.parametrize(("moved", "kind"), [(512, "too little in flight"), (4096, "")])
def test_waits_for_copies_matter_where_the_memory_has_room(moved: int, kind: str) -> None:
    """4,096 bytes of 16 warps in 1,000 ns on each SM are more than an H200's memory can move."""
    code = {
        "wait": {"instructions": 1, "waits": 1},
        "issue": {"instructions": 20, "copies": 2, "moved_bytes": moved},
        "use": {"instructions": 50, "shared": 1, "ways": 1},
    }
    found = findings(kernel(loop({"wait": 700, "issue": 200, "use": 100}, rounds=12, warps=16), code))
    one = verdict(found, "too little in flight")
    assert (one.verdict, one.region) == (("supported", "wait") if kind else ("refuted", ""))


@pytest.mark.parametrize(("moved", "supported"), [(128, True), (2048, False)])
def test_unknown_addresses_are_apart_where_much_is_in_flight_and_little_arrives(moved: int, supported: bool) -> None:
    code = {
        "fetch": {"instructions": 48, "loads": 4, "load_bytes": 16, "scattered": 4, "moved_bytes": moved},
        "emit": {"instructions": 8, "stores": 4, "store_waste": 1.0, "moved_bytes": moved},
    }
    found = findings(kernel(loop({"fetch": 500, "emit": 4_500}, rounds=3, warps=48), code))
    assert (verdict(found, "uncoalesced access").verdict == "supported") == supported


def test_atomics_in_several_places_count_together() -> None:
    code = {name: {"instructions": 1, "atomics": 1} for name in ("w", "x", "y", "z")}
    code |= {"get": {"instructions": 3, "loads": 1, "load_bytes": 4}, "do": {"instructions": 400}}
    spans = loop({"get": 20_000, "w": 4_000, "x": 4_000, "y": 4_000, "z": 4_000, "do": 20_000})
    assert verdict(findings(kernel(spans, code)), "atomics contention").verdict == "supported"
