"""Findings about kernels whose regions have names that say nothing: the code of the regions decides."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import Span
from tests.support.kernel_traces import SMS, kernel, loop, verdict
from warplens.analyse.analysis import Answers
from warplens.analyse.code_counts import CodeCounts
from warplens.analyse.evidence import Evidence
from warplens.analyse.findings import findings
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.region_purpose import Purpose, purposes
from warplens.analyse.wait_classes import WaitClass, wait_class
from warplens.analyse.waves import WAVES
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
        ({"instructions": 10, "barriers": 2, "shared": 0.125, "stores": 1}, Purpose.WAIT),
        ({"instructions": 80, "barriers": 10, "shared": 4}, Purpose.OTHER),
        ({"instructions": 60, "waits": 8, "matrix": 4}, Purpose.OTHER),
        ({"instructions": 3, "barriers": 1, "matrix": 1}, Purpose.OTHER),
        ({"instructions": 15, "copies": 1, "moved_bytes": 4096}, Purpose.MEMORY),
        ({"instructions": 60, "copies": 1, "shared": 9}, Purpose.OTHER),
    ],
)
def test_code_says_the_purpose_where_the_name_does_not(counts: dict[str, float], purpose: Purpose) -> None:
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
            Span("A", 0, 1 + 10_000 * block, block, 0, sm=block),
            Span("B", 1 + 10_000 * block, 9_900, block, 0, sm=block),
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


def test_waits_of_many_warps_for_copies_of_unknown_size_are_not_decided() -> None:
    code = {
        "wait": {"instructions": 1, "waits": 1},
        "issue": {"instructions": 20, "copies": 2},
        "use": {"instructions": 50, "shared": 1, "ways": 1},
    }
    first = findings(kernel(loop({"wait": 800, "issue": 100, "use": 100}, rounds=12, warps=24), code))[0]
    assert (first.kind, first.region) == ("undecided", "wait")
    assert "--bytes" in first.advice


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


def memory_bound() -> dict[str, dict[str, float]]:
    """16 warps of each SM move 2,048 bytes each in 1,000 ns: 90 % of what an H200's memory can."""
    counts = {"instructions": 20, "loads": 4, "load_bytes": 64, "fetch_bytes": 2048, "moved_bytes": 2048}
    return {"get": counts, "use": {"instructions": 9}}


def test_what_all_blocks_read_alike_keeps_no_memory_busy() -> None:
    spans = loop({"get": 900, "use": 100}, rounds=12, warps=16)
    own = Evidence(Answers(kernel(spans, memory_bound()), None), "kernel", KnownFacts())
    assert own.memory_busy
    alike = memory_bound()
    alike["get"]["moved_by_"] = alike["get"]["moved_bytes"]
    shared = Evidence(Answers(kernel(spans, alike), None), "kernel", KnownFacts())
    assert not shared.memory_busy
    assert shared.memory_reached == own.memory_reached, "what is asked for is the same"
    assert shared.most_gain > own.most_gain


def test_a_copy_of_one_thread_counts_once_for_all_warps_of_its_block() -> None:
    """8 warps run the region; one thread moves 4,096 bytes for all of them."""
    spans = loop({"next": 100, "wait": 900}, rounds=4, warps=8)
    waits = {"instructions": 4, "waits": 1}
    block = {"next": {"instructions": 9, "copies": 1, "block_bytes": 4096}, "wait": waits}
    warp = {"next": {"instructions": 9, "copies": 1, "moved_bytes": 4096}, "wait": waits}
    reached = [
        Evidence(Answers(kernel(spans, code), None), "kernel", KnownFacts()).memory_reached for code in (block, warp)
    ]
    assert reached[0] is not None
    assert reached[1] == pytest.approx(8 * reached[0])
    assert reached[0] == pytest.approx(4096 * SMS / 1_000 / 4_800)
    assert findings(kernel(spans, block))[0].kind == "too little in flight"


def test_a_copy_of_unknown_size_says_nothing_about_the_memory() -> None:
    code = {"next": {"instructions": 9, "copies": 1, "unknown_bytes": 1, "moved_bytes": 4}, "wait": {"waits": 1}}
    e = Evidence(Answers(kernel(loop({"next": 100, "wait": 900}), code), None), "kernel", KnownFacts())
    assert (e.memory_reached, e.memory_at_most) == (None, None)


def test_a_region_that_uses_loads_waits_for_them() -> None:
    """`use` has 20 instructions and takes 2,000 cycles, right behind a load of one word."""
    get = {"instructions": 7, "loads": 1, "load_bytes": 4, "load_waste": 1.0, "moved_bytes": 128, "fetch_bytes": 128}
    spans = loop({"get": 20, "use": 1_000}, rounds=40)
    found = findings(kernel(spans, {"get": get, "use": {"instructions": 20}}))
    assert (found[0].kind, found[0].region) == ("too little in flight", "get")
    assert "where it is used, in `use`" in found[0].what
    busy = findings(kernel(spans, {"get": get, "use": {"instructions": 1_500}}))
    assert verdict(busy, "too little in flight").verdict == "refuted", "its instructions take that long"
    loops = findings(kernel(spans, {"get": get, "use": {"instructions": 20, "unbounded": 1}}))
    assert verdict(loops, "too little in flight").verdict == "refuted", "how many it runs is not known"


def test_a_free_place_on_a_busy_sm_is_no_room() -> None:
    """Two places on each SM; blocks of 16 warps keep it busy alone, blocks of two do not."""
    thin = []
    for warps in (16, 2):
        spans = [
            Span("work", 1_000 * (block // SMS), 1_000 + 500 * (block % 2), block, warp, sm=block % SMS)
            for block in range(2 * SMS)
            for warp in range(warps)
        ]
        made = kernel(spans)
        launches = tuple(replace(info, block=(32 * warps, 1, 1)) for info in made.meta.launches)
        made.meta = replace(made.meta, launches=launches)
        thin.append(Evidence(Answers(made, None), "kernel", KnownFacts()).of(WAVES).thin)
    assert thin[0] == 0
    assert thin[1] > 0.1


def test_conflicts_in_a_small_part_of_a_region_are_not_its_cause() -> None:
    """8 accesses of 8 lanes on a bank are 64 cycles of 20,000 that the region waits for data."""
    get = {"instructions": 9, "loads": 8, "load_bytes": 128, "load_waste": 1.0}
    turn = {"instructions": 40, "shared": 8, "ways": 8, "conflicts": 56}
    found = findings(kernel(loop({"get": 20, "turn": 10_000}, warps=8), {"get": get, "turn": turn}))
    assert verdict(found, "bank conflicts").verdict == "refuted"
