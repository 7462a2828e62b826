"""Findings that must not promise what a repair cannot bring: needed barriers, equal blocks, busy schedulers, queues."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.builders import Span
from tests.support.kernel_traces import SMS, kernel, loop, rounds_with_barrier, verdict
from warplens.analyse.findings import findings

FREE = {"instructions": 60, "barriers": 2, "unneeded_barriers": 2, "loads": 4, "load_bytes": 16, "fetch_bytes": 512}


def test_a_block_of_one_warp_waits_for_no_other() -> None:
    """The barriers of examples/attention/broken/rows.cu: provably unneeded, and free."""
    code = {"load": {**FREE, "loops": 1, "unbounded": 1}, "rows": {"instructions": 466, "unbounded": 1, "loops": 1}}
    verdicts = []
    for warps in (1, 4):
        trace = kernel(loop({"load": 3_000, "rows": 3_000}, rounds=20, warps=warps), code)
        launches = tuple(replace(one, block=(32 * warps, 1, 1)) for one in trace.meta.launches)
        trace.meta = replace(trace.meta, launches=launches)
        verdicts.append(verdict(findings(trace), "unneeded barrier").verdict)
    assert verdicts == ["refuted", "supported"]


@pytest.mark.parametrize(("looped", "rounds", "said"), [(0, 1, "refuted"), (1, 1, "supported"), (0, 20, "supported")])
def test_a_barrier_at_the_end_of_work_of_unknown_length_counts_if_it_is_passed_often(
    looped: int, rounds: int, said: str
) -> None:
    code = {"instructions": 80, "barriers": 1, "unneeded_barriers": 1, "loops": 1, "unbounded": 1}
    trace = kernel(loop({"qk": 20_000}, rounds=rounds, warps=8), {"qk": {**code, "looped_barriers": looped}})
    assert verdict(findings(trace), "unneeded barrier").verdict == said


def test_a_barrier_that_may_be_needed_is_worth_nothing_for_sure() -> None:
    """In each round one of eight warps is late."""
    spans = rounds_with_barrier(lambda turn, warp: 9_000 if warp == turn % 8 else 1_000)
    gains = {}
    for kind in ("unneeded", "unknown"):
        sync = {"instructions": 1, "barriers": 1, f"{kind}_barriers": 1}
        one = verdict(findings(kernel(spans, {"walk": {"instructions": 90}, "sync": sync})), "unneeded barrier")
        gains[kind] = one.gain.low, one.confidence, "Data may pass there" in one.what
    assert gains["unneeded"][0] > 0.2
    assert gains["unneeded"][1:] == ("medium", False)
    assert gains["unknown"] == (0.0, "low", True)


def test_blocks_that_execute_the_same_are_not_uneven() -> None:
    """Loads of some blocks take up to twice as long: the memory serves them later. A loop of unknown length may do
    more in some blocks than in others."""
    spans = []
    for block in range(2 * SMS):
        lasts = 4_000 + 400 * (block * 37 % 11)
        spans += [
            Span("load", turn * lasts, lasts, block, warp, sm=block % SMS) for turn in range(4) for warp in range(4)
        ]
    load = {"instructions": 20, "loads": 4, "load_bytes": 16, "load_waste": 1, "moved_bytes": 512, "fetch_bytes": 512}
    said = [
        verdict(findings(kernel(spans, {"load": {**load, **more}})), "block imbalance").verdict
        for more in ({}, {"loops": 1, "unbounded": 1})
    ]
    assert said == ["refuted", "supported"]
    longer = [replace(one, start=one.start + 40_000) for one in spans if one.block % 11 == 0]
    uneven = findings(kernel([*spans, *longer], {"load": load}))
    assert verdict(uneven, "block imbalance").verdict == "supported", "some have more instances"


def test_little_in_flight_at_the_end_of_uneven_blocks_is_no_latency() -> None:
    """Four blocks of an SM have enough in flight together; of some SMs, one block lasts far longer than the others."""
    row = {"instructions": 30, "loads": 8, "load_bytes": 32, "load_waste": 1, "moved_bytes": 1_152}
    row |= {"fetch_bytes": 1_152, "loops": 1, "unbounded": 1}
    for longest, causes in ((12, ("block imbalance", "refuted")), (3, ("too little in flight", "supported"))):
        spans = []
        for block in range(4 * SMS):
            rounds = longest if block % 16 == 0 else 3
            spans += [
                Span("row", turn * 4_000, 4_000, block, warp, sm=block % SMS)
                for turn in range(rounds)
                for warp in range(4)
            ]
        each = {"fetch_bytes": 1_152} if longest > 3 else {"fetch_bytes": 256, "moved_bytes": 256}
        found = findings(kernel(spans, {"row": row | each}))
        assert (found[0].kind, verdict(found, "too little in flight").verdict) == causes


def test_where_most_warps_work_more_loads_in_flight_gain_what_the_schedulers_leave() -> None:
    """36 warps of an SM, of which a third fetches: 1,500 instructions in each round of 30,000 cycles."""
    get = {"instructions": 7, "loads": 1, "load_bytes": 4, "load_waste": 1, "moved_bytes": 128, "fetch_bytes": 128}
    gains = []
    for each in (100, 1_500):
        spans = []
        for warp in range(36):
            at = 0
            for _ in range(8):
                spans += [Span("get", at, 5_000, 0, warp), Span("work", at + 5_000, 10_000, 0, warp)]
                at += 15_000
        spans = [replace(one, block=block, sm=block) for block in range(SMS) for one in spans]
        found = findings(kernel(spans, {"get": get, "work": {"instructions": each}}))
        gains.append(verdict(found, "too little in flight").gain.high)
    assert gains[1] <= 1 - 36 * 1_500 / 4 / 30_000 / 0.9 + 0.01 < gains[0]


def test_loads_behind_atomics_that_queue_in_shared_memory_wait_as_well() -> None:
    """An SM's memory is idle, and yet loads take six times a latency, because atomics hold them up."""
    get = {"instructions": 7, "loads": 1, "load_bytes": 4, "load_waste": 1, "moved_bytes": 128, "fetch_bytes": 128}
    count = {"instructions": 9, "shared_atomics": 4}
    for lasts, said in ((2_700, "supported"), (450, "refuted")):
        spans = loop({"get": lasts, "count": lasts // 3}, rounds=40, warps=8)
        one = verdict(findings(kernel(spans, {"get": get, "count": count})), "atomics contention")
        assert one.verdict == said
    spans = loop({"get": 2_700, "count": 900}, rounds=40, warps=8)
    one = verdict(findings(kernel(spans, {"get": get, "count": count})), "atomics contention")
    assert one.gain.low > 0.2
    plain = kernel(spans, {"get": get, "count": {"instructions": 9, "shared": 4, "ways": 1}})
    assert verdict(findings(plain), "atomics contention").verdict == "refuted"


def test_few_unused_bytes_are_no_uncoalesced_access() -> None:
    """One load of 16 touches four times its sectors, the others none too many."""
    rows = {"instructions": 150, "loads": 16, "load_bytes": 160, "load_waste": 4, "moved_bytes": 4_160}
    said = []
    for wasted in (192, 4_160):
        code = {"rows": {**rows, "wasted_bytes": wasted, "fetch_bytes": 4_160 + wasted}}
        said.append(
            verdict(findings(kernel(loop({"rows": 3_000, "y": 10}, warps=16), code)), "uncoalesced access").verdict
        )
    assert said == ["refuted", "supported"]


def test_uneven_warps_gain_no_more_than_the_schedulers_leave() -> None:
    """Where 1,000 instructions of each of 8 warps take 80 % of the schedulers, even work saves little."""
    spans = rounds_with_barrier(lambda turn, warp: 9_000 if warp == turn % 8 else 1_000)
    sync = {"instructions": 1, "barriers": 1, "needed_barriers": 1}
    gains = []
    for each in (90, 6_500):
        code = {"walk": {"instructions": each, "unbounded": 1}, "sync": sync}
        gains.append(verdict(findings(kernel(spans, code)), "warp imbalance").gain.high)
    assert gains[1] < 0.25 < gains[0]


def test_warps_meet_in_time_after_loops_of_the_same_length() -> None:
    """A barrier behind such a loop is not what its region waits for; one in the loop may be."""
    code = {
        "instructions": 90,
        "barriers": 1,
        "unknown_barriers": 1,
        "loops": 1,
        "unbounded": 1,
        "shared": 4,
        "ways": 1,
    }
    said = []
    for more in ({}, {"lengths_known": 1}, {"lengths_known": 1, "looped_barriers": 1}):
        found = findings(kernel(loop({"scan": 20_000}, rounds=3, warps=8), {"scan": {**code, **more}}))
        said.append(verdict(found, "waits inside a region").verdict)
    assert said == ["undecided", "refuted", "undecided"]
