"""Findings that another explanation speaks against: a busy memory, atomics, warps with two roles, blocks per SM."""

from __future__ import annotations

import random
from dataclasses import replace

from tests.support.builders import Span, make_trace
from tests.support.kernel_traces import SMS, kernel, loop, verdict
from warplens.analyse.findings import findings
from warplens.analyse.role_waits import role_waits
from warplens.record.barrier_words import BarrierWord, Operation
from warplens.trace.barrier_rows import NO_WAIT


def test_what_an_atomic_on_shared_memory_takes_is_no_wait_for_a_load() -> None:
    """How many lanes meet at an address is known only at run time."""
    get = {"instructions": 7, "loads": 1, "load_bytes": 4, "load_waste": 1.0, "moved_bytes": 128, "fetch_bytes": 128}
    spans = loop({"get": 20, "count": 1_000}, rounds=40)
    found = findings(kernel(spans, {"get": get, "count": {"instructions": 9, "shared_atomics": 1}}))
    assert verdict(found, "too little in flight").verdict == "refuted"


def test_a_ring_whose_sides_wait_for_one_another_needs_no_more_stages_where_the_memory_is_busy() -> None:
    """16 KB per 2,000 ns on each of 132 SMs is 23 % of an H200's memory; 48 KB are 66 %."""
    verdicts = []
    for moved in (16_384, 49_152):
        spans = []
        for block in range(SMS):
            for turn in range(20):
                at = 2_000 * turn
                spans += [Span("acquire", at, 1_000, block, 0), Span("fetch", at + 1_000, 50, block, 0)]
                spans += [Span("receive", at, 1_200, block, 1), Span("math", at + 1_200, 780, block, 1)]
        wait = {"instructions": 3, "waits": 1}
        fetch = {"instructions": 7, "copies": 1, "moved_bytes": moved}
        math = {"instructions": 70, "shared": 4, "ways": 1}
        code = {"acquire": wait, "receive": wait, "fetch": fetch, "math": math}
        verdicts.append(verdict(findings(kernel(spans, code)), "too little in flight").verdict)
    assert verdicts == ["supported", "refuted"]


def test_warps_that_wait_for_room_in_a_ring_are_not_serialised_where_the_memory_is_busy() -> None:
    """Two warps of each SM, and nearly all the time both wait for copies."""
    spans = loop({"wait empty": 1_800, "fetch": 100}, rounds=20, warps=1)
    spans += [replace(one, warp=1) for one in loop({"wait full": 1_800, "math": 100}, rounds=20, warps=1)]
    wait, math = {"instructions": 3, "waits": 1}, {"instructions": 30, "shared": 4, "ways": 1}
    verdicts = []
    for moved in (16_384, 49_152):
        code = {"wait empty": wait, "wait full": wait, "math": math}
        code["fetch"] = {"instructions": 7, "copies": 1, "moved_bytes": moved}
        verdicts.append(verdict(findings(kernel(spans, code)), "serialised section").verdict)
    assert verdicts == ["supported", "refuted"]


def test_a_warp_that_brings_what_all_wait_for_and_works_like_them_is_no_producer() -> None:
    def rows(works: bool) -> list[Span]:
        copy, wait = BarrierWord(Operation.COPY, 64), BarrierWord(Operation.WAIT, 64, 0)
        found = [list[Span](), list[Span]()]
        for step in range(8):
            at, each = 10_000 * step, 4 if works else 3
            found[0] += [_value("issue", at + 100, 0, copy), Span("wait", at + 200, 9_000, warp=0)]
            found[0] += [_value("wait", at + 200, 0, wait, each * step)]
            found[0] += [Span("use", at + 9_300, 500, warp=0)] if works else []
            found[1] += [Span("wait", at + 1_000, 8_200, warp=1), _value("wait", at + 1_000, 1, wait, each * step)]
            found[1] += [Span("use", at + 9_300, 500, warp=1)]
        return [*found[0], *found[1]]

    sides = [{one.side for one in role_waits(make_trace(rows(works)))["kernel"].roles} for works in (True, False)]
    assert "producer" not in sides[0]
    assert "producer" in sides[1]


def _value(region: str, at: int, warp: int, word: BarrierWord, released_by: int = NO_WAIT) -> Span:
    return Span(region, at, warp=warp, kind="value", value=float(word.pack()), released_by=released_by)


def test_sms_that_end_last_with_a_block_more_than_the_others_show_a_last_wave() -> None:
    """Blocks of one SM share its throughput, so that a block more takes a fifth longer; uneven blocks would have no
    more of them."""
    spans = []
    for block in range(4 * SMS + 8):
        sm = block % SMS
        many = 5 if sm < 8 else 4
        number = block // SMS
        begin = 0 if number < 4 else 10_000
        end = 10_000 * (number + 1) if number < 4 else 50_000
        assert number < many
        spans += [Span("math", begin, end - begin, block, warp, sm=sm) for warp in range(4)]
    found = findings(kernel(spans, {"math": {"instructions": 900}}))
    assert (found[0].kind, found[0].confidence) == ("last wave", "medium")
    rng = random.Random(5)
    uneven = [
        Span("math", 0, 40_000 + (10_000 if rng.random() < 0.02 else 0), block, warp, sm=block % SMS)
        for block in range(4 * SMS)
        for warp in range(4)
    ]
    assert verdict(findings(kernel(uneven, {"math": {"instructions": 900}})), "last wave").verdict == "refuted"


def test_lanes_in_lines_of_their_own_are_looked_up_one_by_one() -> None:
    """Eight times the sectors are up to 32 times the lines, so that more than 7 of 8 parts may be saved."""
    counts = {"instructions": 20, "loads": 8, "load_bytes": 32, "load_waste": 8.0, "moved_bytes": 8.0}
    counts |= {"wasted_bytes": 7 * 1024, "fetch_bytes": 8 * 1024}
    first = findings(kernel(loop({"load": 4_000}, warps=8), {"load": counts}))[0]
    assert first.kind == "uncoalesced access"
    assert 7 / 8 + 0.05 < first.gain.high <= 31 / 32


def test_loads_behind_a_queue_of_atomics_wait_in_it_too() -> None:
    """`get` takes 30 times what a load does; of both regions, nearly all is the queue."""
    get = {"instructions": 3, "loads": 1, "load_bytes": 4, "load_waste": 1.0, "moved_bytes": 128}
    code = {"get": get, "add": {"instructions": 1, "atomics": 1}, "do": {"instructions": 900}}
    spans = loop({"get": 30_000, "add": 7_000, "do": 300})
    found = verdict(findings(kernel(spans, code)), "atomics contention")
    assert found.verdict == "supported"
    assert found.evidence["queued_share"] > 0.96, "the atomics alone queue for 1 - 300 / 7,000 of their time"


def test_lanes_that_meet_at_an_address_of_shared_memory_queue_there() -> None:
    """One atomic that takes 3,000 cycles; as many in a loop of unknown length say nothing."""
    add = {"instructions": 4, "shared_atomics": 1}
    spans = loop({"add": 1_500, "do": 1_000})
    found = verdict(findings(kernel(spans, {"add": add, "do": {"instructions": 400}})), "atomics contention")
    assert (found.verdict, found.region) == ("supported", "add")
    looped = {**add, "loops": 1, "unbounded": 1}
    found = verdict(findings(kernel(spans, {"add": looped, "do": {"instructions": 400}})), "atomics contention")
    assert found.verdict == "refuted"
    quick = kernel(loop({"add": 100, "do": 1_000}), {"add": add, "do": {"instructions": 400}})
    assert verdict(findings(quick), "atomics contention").verdict == "refuted"
