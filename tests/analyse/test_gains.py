"""How much a finding says that a repair saves: intervals that follow from what the kernel is made of."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.builders import Span
from tests.support.kernel_traces import SMS, kernel, loop, pipeline, rounds_with_barrier, verdict
from warplens.analyse.finding import Gain
from warplens.analyse.findings import findings
from warplens.record.cost_keys import SLOWDOWN_MEASURED
from warplens.trace.model import Trace


@pytest.mark.parametrize("estimate", [0.1, 0.3, 0.5, 0.8, 0.95])
def test_an_interval_holds_its_estimate_and_says_most_where_little_or_nearly_all_is_saved(estimate: float) -> None:
    low, high = Gain.around(estimate)
    assert 0 <= low < estimate < high <= 1
    assert high - low <= 0.6
    assert Gain.around(estimate, roof=estimate + 0.01).high == pytest.approx(estimate + 0.01)
    assert Gain.around(estimate, roof=estimate / 2).high == pytest.approx(estimate / 2)


def test_two_estimates_that_differ_need_less_room_beside_them() -> None:
    low, high = Gain.around(0.3, 0.6)
    assert Gain.around(0.3).low < low < 0.3
    assert 0.6 < high < Gain.around(0.6).high
    assert Gain.around(0.0, 0.4).low == 0.0


def test_a_barrier_is_worth_no_more_than_what_no_warp_needs() -> None:
    draw = np.random.default_rng(1).integers(1000, 9000, (10, 8))
    one = verdict(findings(kernel(rounds_with_barrier(lambda turn, warp: draw[turn, warp]))), "unneeded barrier")
    ideal = 1 - draw.sum(axis=0).max() / (draw.max(axis=1) + 10).sum()
    assert one.gain.low < ideal < one.gain.high < 1.2 * ideal


def test_a_last_wave_is_worth_the_idle_time_or_what_halved_blocks_leave_of_it() -> None:
    blocks = SMS + 1
    spans = [Span("work", 10_000 * (one // SMS), 10_000, one, 0, sm=one % SMS) for one in range(blocks)]
    one = verdict(findings(kernel(spans)), "last wave")
    assert one.gain.low < 0.25 < 0.496 < one.gain.high, "133 blocks of half the size take 1.5 times one, or 133/132"
    assert one.gain.high < 0.6


def test_what_must_be_moved_limits_every_gain() -> None:
    """Lanes that are apart: what 16 warps on each SM use is 6 %, or 34 %, of what the memory can move meanwhile."""
    gains = []
    for moved in (128, 768):
        counts = {"instructions": 9, "loads": 4, "load_bytes": 16, "load_waste": 8.0, "moved_bytes": moved}
        found = findings(kernel(loop({"get": 1_000}, warps=16), {"get": counts}))
        gains.append(verdict(found, "uncoalesced access").gain)
    few, many = gains
    assert few.high > 0.85
    assert many.high == pytest.approx(1 - 768 * 16 * SMS / 1_000 / 4_800 / 1.4, abs=0.01)
    assert many.low < few.low


def test_busy_shared_memory_is_what_conflicts_take() -> None:
    """64 accesses of 8 warps with 8 lanes on a bank take 4,096 cycles of 5,000."""
    counts = {"instructions": 100, "shared": 64, "ways": 8, "conflicts": 448}
    one = verdict(findings(kernel(loop({"x": 2_490, "y": 10}, warps=8), {"x": counts})), "bank conflicts")
    assert one.gain.low < 0.72 < one.gain.high, "7 of 8 of the 82 % that it is busy"
    assert one.gain.high - one.gain.low < 0.5
    hidden = verdict(
        findings(kernel(loop({"x": 900, "y": 9_000}, warps=1), {"x": counts | {"loads": 1}})), "bank conflicts"
    )
    assert hidden.gain.low == 0.0 or hidden.verdict == "refuted", "others may work meanwhile"


def test_atomics_in_a_loop_may_be_few_of_its_instructions() -> None:
    counts = {"instructions": 40, "atomics": 1}
    known, looped = (
        verdict(findings(kernel(loop({"put": 60_000, "x": 50}), {"put": counts | more})), "atomics contention").gain
        for more in ({}, {"loops": 1})
    )
    assert known.low > 0.9, "each waits 60,000 cycles for its turn"
    assert looped.low < 0.5


def test_warps_that_have_nothing_to_do_cost_little_where_enough_others_have() -> None:
    said = []
    for blocks_per_sm in (1, 8):
        spans = []
        for block in range(SMS * blocks_per_sm):
            for warp in range(4):
                lasts = 8_000 if warp == 0 else 4_000
                spans.append(Span("x", 0, lasts, block, warp, sm=block % SMS))
                spans.append(Span("wait", lasts, 8_010 - lasts, block, warp, sm=block % SMS))
        found = findings(kernel(spans, {"wait": {"instructions": 1, "barriers": 1}}))
        said.append(verdict(found, "warp imbalance"))
    few, many = said
    assert few.gain.low > 0.15
    assert few.confidence != "low"
    assert (many.gain.low, many.confidence) == (0.0, "low")
    assert few.gain.high == pytest.approx(many.gain.high, abs=0.02)
    assert "others may fill the gaps" in many.what


def test_a_single_consumer_is_worth_the_schedulers_that_it_leaves_idle() -> None:
    one = verdict(findings(kernel(pipeline(load=100, work=2_000, consumers=1))), "slow consumer")
    assert 0.4 < one.gain.low < 0.75 < one.gain.high


def test_conflicts_in_a_loop_beside_accesses_to_memory_are_not_sure() -> None:
    counts = {"instructions": 300, "shared": 14, "ways": 4, "conflicts": 12, "loads": 14, "load_bytes": 56, "loops": 1}
    spans = loop({"load": 40_000, "work": 60_000})
    sure, unsure = (
        verdict(findings(kernel(spans, {"load": counts | more})), "bank conflicts")
        for more in ({"conflicts": 42, "loads": 0, "load_bytes": 0}, {"conflicts": 42})
    )
    assert (sure.confidence, unsure.confidence, unsure.gain.low) == ("high", "low", 0.0)


def test_marks_between_loads_take_time_that_no_repair_saves() -> None:
    code = {"load": {"instructions": 9, "loads": 1, "load_bytes": 4, "load_waste": 1.0}}
    made = kernel(loop({"load": 3_000}, warps=16), code)
    plain = verdict(findings(made), "too little in flight").gain
    marked = Trace(made.spans, replace(made.meta, cost={SLOWDOWN_MEASURED: 1.5}))
    costly = verdict(findings(marked), "too little in flight").gain
    assert costly.low < plain.low - 0.1
    assert costly.high == pytest.approx(plain.high, abs=0.05)


def test_conflicts_that_keep_shared_memory_busy_count_also_where_they_take_little_time_themselves() -> None:
    """Before its loop, each of 32 warps makes 32 accesses of 32 cycles: the others wait for their own meanwhile."""
    counts = {"instructions": 60, "shared": 32, "ways": 32, "conflicts": 992}
    first = [Span("before", 0, 2_000, block, warp, sm=block) for block in range(SMS) for warp in range(32)]
    rest = [Span("loop", 2_000, 58_000, block, warp, sm=block) for block in range(SMS) for warp in range(32)]
    code = {"before": counts, "loop": {"instructions": 90, "loads": 32, "load_bytes": 128}}
    one = verdict(findings(kernel(first + rest, code)), "bank conflicts")
    assert (one.verdict, one.region) == ("supported", "before")
    busy = one.evidence["pipe_busy_share"]
    assert isinstance(busy, float)
    assert one.gain.high > busy > 5 * 2_000 / 60_000, "far more than the share of warp time"


def test_a_long_queue_of_atomics_holds_up_code_that_has_none() -> None:
    code = {"put": {"instructions": 2, "atomics": 1}, "x": {"instructions": 12}}
    held_up = verdict(findings(kernel(loop({"put": 9_000, "x": 20_000}), code)), "atomics contention").gain
    busy = {**code, "x": {"instructions": 2_000}}
    apart = verdict(findings(kernel(loop({"put": 9_000, "x": 20_000}), busy)), "atomics contention").gain
    assert held_up.low > 0.8, "20,000 cycles are too many for 12 instructions"
    assert apart.high < 0.75


def sampled(spans: list[Span], code: dict[str, dict[str, float]], blocks: int) -> Trace:
    """A trace that knows of some blocks only of a grid of `blocks`."""
    made = kernel(spans, code)
    launches = tuple(replace(info, grid=(blocks, 1, 1)) for info in made.meta.launches)
    return Trace(made.spans, replace(made.meta, launches=launches))


def test_warps_of_blocks_that_the_trace_does_not_know_have_loads_in_flight_too() -> None:
    code = {"load": {"instructions": 9, "loads": 8, "load_bytes": 32, "load_waste": 1.0}}
    spans = loop({"load": 3_000})
    known, unknown = (verdict(findings(sampled(spans, code, SMS * more)), "too little in flight") for more in (1, 8))
    assert known.verdict == "supported", "4 warps with 1 KiB each"
    assert unknown.verdict == "refuted", "32 warps with 1 KiB each"


@pytest.mark.parametrize(("turn_ns", "atomics", "least", "most"), [(1_000, 0, 0.0, 0.3), (10_000, 0, 0.6, 1.0),
                                                                   (1_000, 1, 0.6, 1.0)])  # fmt: skip
def test_an_order_that_must_be_kept_leaves_what_passing_on_a_turn_takes(
    turn_ns: int, atomics: int, least: float, most: float
) -> None:
    """A chain of flags passes on each turn through the cache; a lock may be replaced by something without turns."""
    spans = []
    for block in range(SMS):
        spans += [
            Span("A", 0, 1 + turn_ns * block, block, 0, sm=block),
            Span("B", 1 + turn_ns * block, turn_ns - 100, block, 0, sm=block),
        ]
    wait = {"instructions": 30, "polls": 1, "loads": 2, "atomics": atomics}
    one = verdict(findings(kernel(spans, {"A": wait, "B": {"instructions": 90}})), "serialised section")
    assert least <= one.gain.low <= most
    assert one.gain.high > 0.95


def test_scattered_stores_may_hold_up_the_regions_beside_them() -> None:
    """Most of the time is in a region that stores nothing, whose instructions take a tenth of it."""
    code = {
        "draw": {"instructions": 400},
        "keep": {"instructions": 18, "stores": 16, "store_waste": 8, "moved_bytes": 200, "wasted_bytes": 1400},
    }
    one = verdict(
        findings(kernel(loop({"draw": 80_000, "keep": 20_000}, warps=16, rounds=1), code)), "uncoalesced access"
    )
    assert one.gain.low < 0.4
    assert 0.85 <= one.gain.high < 0.97


def test_conflicts_in_a_loop_of_unknown_length_take_what_its_rounds_do_not_need() -> None:
    """16 warps with 8 accesses each to one bank: 4,096 cycles a round, of which instructions need 300."""
    counts = {"instructions": 40, "shared": 8, "ways": 32, "conflicts": 248, "loops": 1, "unbounded": 1}
    one = verdict(findings(kernel(loop({"x": 200_000, "y": 100}, warps=16), {"x": counts})), "bank conflicts")
    assert one.gain.low > 0.6
    assert one.gain.high > 0.9
    alone = verdict(findings(kernel(loop({"x": 200_000, "y": 100}, warps=1), {"x": counts})), "bank conflicts")
    assert alone.gain.high < 0.65, "a warp alone takes as long for its instructions"


def test_more_blocks_gain_until_an_sm_is_full_or_busy() -> None:
    """A warp on a quarter of the SMs: the others are idle, and so are most schedulers of these."""
    spans = [Span("x", 0, 100_000, block, 0, sm=block) for block in range(SMS // 4)]
    gains = []
    for instructions in (1_000, 600_000):
        trace = kernel(spans, {"x": {"instructions": instructions}})
        trace.meta = replace(trace.meta, devices={"0": {**trace.meta.devices.get("0", {}), "sm_count": SMS}})
        gains.append(verdict(findings(trace), "too few blocks").gain)
    few, busy = gains
    assert few.high > 0.98
    assert 0.75 < busy.high < 0.85
