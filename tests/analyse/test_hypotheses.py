"""Each hypothesis on kernels made for it: supported where its cause is there, and refuted where it is not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.builders import Span
from tests.support.kernel_traces import SMS, kernel, loop, pipeline, rounds_with_barrier, verdict
from warplens.analyse.findings import findings
from warplens.analyse.hypotheses import HYPOTHESES
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.ncu import NcuKernel
from warplens.trace.model import Trace


def test_every_hypothesis_gives_a_verdict_on_every_kernel() -> None:
    found = findings(kernel(loop({"load": 1000, "work": 1000})))
    said = {one.kind for part in (found, found.undecided, found.withheld, found.refuted) for one in part}
    said |= {below.kind for one in found for below in one.consequences}
    assert set(HYPOTHESES) <= said
    explained = {cause for one in HYPOTHESES.values() for cause in one.explains}
    assert explained <= set(HYPOTHESES), "only known causes are explained"


def test_uncoalesced_loads_are_known_from_the_code() -> None:
    spans = loop({"load": 4000, "work": 1000}, warps=8)
    scattered = kernel(spans, {"load": {"instructions": 20, "loads": 8, "load_bytes": 32, "load_waste": 8.0}})
    first = findings(scattered)[0]
    assert (first.kind, first.region, first.confidence) == ("uncoalesced access", "load", "high")
    assert "an access touches 8 times the sectors" in first.what
    together = kernel(spans, {"load": {"instructions": 20, "loads": 8, "load_bytes": 32, "load_waste": 1.0}})
    assert verdict(findings(together), "uncoalesced access").verdict == "refuted"
    depends = kernel(spans, {"load": {"instructions": 20, "loads": 8, "load_bytes": 32, "scattered": 8}})
    assert verdict(findings(depends), "uncoalesced access").verdict == "undecided"


def test_a_warp_waits_for_its_loads_where_it_uses_them() -> None:
    spans = loop({"load": 100, "store": 4000}, warps=16)
    code = {
        "load": {"instructions": 20, "loads": 8, "load_bytes": 32, "load_waste": 8.0},
        "store": {"instructions": 9, "stores": 8, "store_waste": 1.0},
    }
    first = findings(kernel(spans, code))[0]
    assert (first.kind, first.region) == ("uncoalesced access", "load")
    loading = {**code, "store": {"instructions": 9, "loads": 8, "load_bytes": 32, "load_waste": 1.0}}
    assert verdict(findings(kernel(spans, loading)), "uncoalesced access").verdict == "refuted", "it has its own loads"


def test_atomics_without_a_result_hold_up_what_follows() -> None:
    spans = loop({"add": 100, "load": 5000}, warps=16)
    code = {"add": {"instructions": 9, "atomics": 4}, "load": {"instructions": 9, "loads": 64, "load_bytes": 256}}
    found = verdict(findings(kernel(spans, code)), "atomics contention")
    assert (found.verdict, found.confidence, found.region) == ("supported", "low", "add")


def test_uncoalesced_loads_are_known_from_counters_which_come_before_the_code() -> None:
    made = kernel(loop({"load": 4000, "work": 1000}), {"load": {"loads": 8, "load_waste": 1.0, "instructions": 20}})
    bad, good = (NcuKernel("kernel", sectors=s, load_efficiency=e) for s, e in ((31.9, 0.06), (16.0, 1.0)))
    first = findings(made, given=KnownFacts(ncu=(bad,)))[0]
    assert first.kind == "uncoalesced access"
    assert "31.9 sectors" in first.what
    assert "6.0 % of the loaded bytes used" in first.what
    assert verdict(findings(made, given=KnownFacts(ncu=(good,))), "uncoalesced access").verdict == "refuted"


def test_without_code_or_counters_throughput_is_one_finding_with_its_alternatives() -> None:
    first = findings(kernel(loop({"load": 4000}, warps=32)))[0]
    assert (first.kind, first.gain.low) == ("undecided", 0.0)
    assert "either its lanes access addresses that are apart, or the memory is at its roof" in first.what
    assert "--ncu" in first.advice


def test_bank_conflicts_are_known_from_the_code() -> None:
    spans = loop({"load": 1000, "scan": 20_000}, warps=8)
    counts = {"instructions": 100, "shared": 64}
    first = findings(kernel(spans, {"scan": {**counts, "ways": 32}, "load": {"instructions": 9}}))[0]
    assert (first.kind, first.region) == ("bank conflicts", "scan")
    assert "32 lanes" in first.what
    rare = {"scan": {**counts, "ways": 32, "conflicts": 31}, "load": {"instructions": 9}}
    assert verdict(findings(kernel(spans, rare)), "bank conflicts").verdict == "refuted", "one access of 64"
    padded = findings(kernel(spans, {"scan": {**counts, "ways": 1}, "load": {"instructions": 9}}))
    assert verdict(padded, "bank conflicts").verdict == "refuted"
    short = findings(kernel(loop({"load": 100, "scan": 300}, warps=8), {"scan": {**counts, "ways": 32}}))
    assert "would take" in verdict(short, "bank conflicts").what, "8 warps x 64 accesses x 32 parts in 300 ns"


def test_atomics_that_take_long_are_contended() -> None:
    spans = loop({"load": 1000, "count": 30_000}, warps=8)
    code = {"count": {"instructions": 40, "atomics": 4}, "load": {"instructions": 9, "loads": 4, "load_bytes": 16}}
    first = findings(kernel(spans, code))[0]
    assert (first.kind, first.region) == ("atomics contention", "count")
    shared = {**code, "count": {"instructions": 40, "shared_atomics": 4, "loops": 1}}
    assert verdict(findings(kernel(spans, shared)), "atomics contention").verdict == "refuted", "how many is not known"


def test_too_little_in_flight_is_a_matter_of_bytes_not_of_warps() -> None:
    """An H200 keeps about 16 KB in flight per SM: 16 warps with one word per lane have 2 KB, with 16 words 32 KB."""
    spans = loop({"load": 3000}, warps=16)
    for words, kind in ((1, "too little in flight"), (16, "nothing to fix")):
        code = {"load": {"instructions": 9, "loads": words, "load_bytes": 4 * words, "load_waste": 1.0}}
        assert findings(kernel(spans, code))[0].kind == kind, words


def test_loads_that_alternate_with_work_are_not_hidden_however_many_bytes_they_fetch() -> None:
    code = {"load": {"instructions": 9, "loads": 64, "load_bytes": 1024, "load_waste": 1.0}}
    first = findings(kernel(loop({"load": 1000, "dot": 1000}), code))[0]
    assert (first.kind, first.region) == ("too little in flight", "load")


def test_registers_or_shared_memory_that_keep_blocks_away_matter_only_if_there_are_more_blocks() -> None:
    parts = {"load": 1000, "work": 1000}
    waves = [replace(span, start=span.start + 16_000 * wave, block=span.block + SMS * wave, sm=span.block)
             for wave in range(4) for span in loop(parts, warps=1)]  # fmt: skip
    resources = {"registers": 40, "shared_bytes": 200 << 10}
    first = findings(kernel(waves, **resources))[0]
    assert (first.kind, first.evidence["limiter"]) == ("low occupancy", "shared memory")
    assert [one.kind for one in first.consequences] == ["too little in flight"]
    one_wave = findings(kernel(loop(parts, warps=1), **resources))
    assert "not enough blocks" in verdict(one_wave, "low occupancy").what


def test_spilled_registers_are_named_with_their_bytes() -> None:
    spans = loop({"work": 4000}, warps=8)
    first = findings(kernel(spans, registers=40, local_bytes=400))[0]
    assert first.kind == "register spills"
    assert "400 bytes" in first.what
    assert findings(kernel(spans, registers=40, spills=400))[0].kind == "register spills", "as Triton says it"
    assert verdict(findings(kernel(spans, registers=40, local_bytes=0)), "register spills").verdict == "refuted"


def test_blocks_that_take_turns_are_serialised_also_where_no_name_says_so() -> None:
    step = 1000
    spans = [
        span
        for block in range(100)
        for span in (
            Span("wait turn", 0, block * step + 1, block),
            Span("section", block * step + 1, step - 1, block),
        )
    ]
    first = findings(kernel(spans))[0]
    assert (first.kind, first.region) == ("serialised section", "wait turn")
    assert first.gain.low > 0.5
    unnamed = [span for span in spans if span.region == "section"]
    found = findings(kernel(unnamed))[0]
    assert (found.kind, found.region, found.evidence["place"]) == ("serialised section", "section", "device")


def test_warps_of_a_block_that_take_turns_are_serialised() -> None:
    spans = []
    for block in range(SMS):
        for warp in range(8):
            spans.append(Span("add", warp * 20_000, 20_000, block, warp))
    found = findings(kernel(spans))[0]
    assert (found.kind, found.region, found.evidence["place"]) == ("serialised section", "add", "block")
    at_once = findings(kernel([replace(span, start=0) for span in spans]))
    assert verdict(at_once, "serialised section").verdict == "refuted"


def test_a_barrier_costs_what_no_single_warp_needs() -> None:
    """A different warp is late in each round: without the barrier, all would be done in the mean time."""
    draw = np.random.default_rng(1).integers(1000, 9000, (10, 8))
    first = findings(kernel(rounds_with_barrier(lambda turn, warp: draw[turn, warp])))[0]
    assert (first.kind, first.region) == ("unneeded barrier", "sync")
    always = findings(kernel(rounds_with_barrier(lambda turn, warp: 9000 if warp == 3 else 3000)))
    assert always[0].kind == "warp imbalance", "the same warp is late each time: that is no matter of the barrier"
    assert always[0].warps == (3,)


def test_a_wait_with_a_block_barrier_in_its_code_is_a_barrier_whatever_its_name() -> None:
    draw = np.random.default_rng(1).integers(1000, 9000, (10, 8))
    spans = rounds_with_barrier(lambda turn, warp: draw[turn, warp], "wait for part")
    code = {
        "walk": {"instructions": 90, "loads": 1, "load_bytes": 4},
        "wait for part": {"instructions": 2, "barriers": 1},
    }
    assert findings(kernel(spans, code))[0].kind == "unneeded barrier"


def test_the_side_that_does_not_wait_is_too_slow() -> None:
    slow_producer = findings(kernel(pipeline(load=3000, work=1000)))[0]
    assert (slow_producer.kind, slow_producer.region) == ("slow producer", "wait full")
    assert slow_producer.warps == (0,)
    slow_consumer = findings(kernel(pipeline(load=1000, work=3000, consumers=1)))[0]
    assert (slow_consumer.kind, slow_consumer.region) == ("slow consumer", "wait empty")
    many = verdict(findings(kernel(pipeline(load=1000, work=3000, consumers=8))), "slow consumer")
    assert (many.gain.low, many.confidence) == (0.0, "low"), "that is how a compute-bound pipeline looks"
    assert "bound by arithmetic looks like this, too" in many.what


def test_warps_that_a_role_leaves_idle_are_not_unmarked() -> None:
    """Blocks of 16 warps, of which 5 have a role: the others have no track."""
    trace = kernel(pipeline(load=3000, work=1000))
    infos = [
        replace(info, block=(512, 1, 1), busy_cycles=16 / 5 * 1.9 * 3e3 * 17 * 5 * SMS) for info in trace.meta.launches
    ]
    trace.meta = replace(trace.meta, launches=tuple(infos))
    assert verdict(findings(trace), "unmarked time").verdict == "refuted"


def test_time_after_the_last_record_that_fits_is_not_called_unmarked() -> None:
    """Each warp made twice the records that fit, so half of its life has none."""
    warps = [(block, warp) for block in range(SMS) for warp in range(8)]
    spans = [Span("load", at, 1_000, *one) for one in warps for at in range(0, 40_000, 1_000)]
    spans += [Span("end", 95_000, 9, *one) for one in warps]
    assert verdict(findings(kernel(spans)), "unmarked time").verdict == "supported"
    cut = kernel(spans)
    full = {"capacity": 80, "most_written": 160}
    cut.meta = replace(cut.meta, launches=tuple(replace(one, extra={**one.extra, **full}) for one in cut.meta.launches))
    found = verdict(findings(cut), "unmarked time")
    assert found.verdict == "undecided"
    assert "records_per_warp" in found.advice


def test_a_tiny_kernel_is_all_launch() -> None:
    spans = [Span("load", 1000, 1000, block, warp) for block in range(SMS) for warp in range(4)]
    first = findings(kernel(spans))[0]
    assert first.kind == "launch ramp"
    long = [replace(span, dur=100_000) for span in spans]
    assert verdict(findings(kernel(long)), "launch ramp").verdict == "refuted"


def test_time_outside_all_regions_is_a_finding_with_the_lines_to_mark() -> None:
    spans = []
    for block in range(SMS):
        for warp in range(8):
            spans.append(Span("load q", 0, 5_000, block, warp))
            spans.append(Span("store", 95_000, 5_000, block, warp))
    made = kernel(spans)
    places = {"load q": "k.cu:33", "store": "k.cu:63"}
    first = findings(Trace(made.spans, replace(made.meta, locations=places)))[0]
    assert first.kind == "unmarked time"
    assert "90.0 % of warp time lies outside all regions, mostly between `load q` and `store` (90.0 %)" in first.what
    assert "Mark k.cu:34-62" in first.advice
    barriers = kernel(spans, {"": {"instructions": 50, "barriers": 2, "loads": 1}})
    assert "Its code has 2 barriers, 1 global load." in findings(barriers)[0].what
    covered = [Span("work", 0, 100_000, block, warp) for block in range(SMS) for warp in range(8)]
    assert verdict(findings(kernel(covered)), "unmarked time").verdict == "refuted"


def test_two_speeds_are_no_claim() -> None:
    """Cache hits and misses look like more and less work."""
    draw = np.random.default_rng(1).choice([400, 1600], 40)
    spans = []
    for block in range(SMS):
        at = 0
        for lasts in draw.tolist():
            spans.append(Span("load", at, lasts, block))
            at += lasts
    found = verdict(findings(kernel(spans)), "cache misses")
    assert found.verdict == "undecided"
    assert "or with more and less work" in found.what
    stores = findings(kernel([replace(span, region="store") for span in spans]))
    assert verdict(stores, "cache misses").verdict == "refuted", "stores do not wait for a cache"


@pytest.mark.parametrize("warps", [4, 16])
def test_work_all_the_time_is_nothing_to_fix(warps: int) -> None:
    found = findings(kernel(loop({"mma": 4000}, warps=warps), registers=64, shared_bytes=0))
    assert [one.kind for one in found] == ["nothing to fix"]


def test_lives_that_the_records_hardly_show_are_not_stated() -> None:
    """All blocks live for 100 µs, and are marked for their last 1 to 9 µs."""
    spans = [Span("end", 90_000, 9_000 if block < 4 else 1_000, block, 0, sm=block) for block in range(SMS)]
    trace = kernel(spans)
    infos = [replace(info, begin_ns=0, busy_ns=100_000 * SMS) for info in trace.meta.launches]
    trace.meta = replace(trace.meta, launches=tuple(infos))
    found = findings(trace)
    assert "block_ns" not in found[0].evidence
    imbalance = verdict(found, "block imbalance")
    assert "first and last records show 1." in imbalance.what
    whole = findings(kernel(spans))
    assert "block_ns" in whole[0].evidence


def test_blocks_that_all_run_at_once_but_unevenly_are_no_wave() -> None:
    """Two blocks on most SMs, three on two of them, which take half as long again."""
    spans = [
        Span("dot", 0, 150_000 if block % SMS < 2 else 100_000, block, 0, sm=block % SMS)
        for block in range(2 * SMS + 2)
    ]
    one = verdict(findings(kernel(spans)), "last wave")
    assert one.what.startswith("Blocks do not divide evenly among the SMs: 266 on 132, at most 3 on one")
    assert "a multiple of 132 blocks" in one.advice
    assert "A grid of 396 equal blocks" in one.refuted_by


def test_copies_and_what_is_nearly_always_slow_say_nothing_of_caches() -> None:
    """A wait that is short once and long else; then the same for loads, in halves."""
    for code, slow, wanted in (
        ({"copies": 2}, 4, "refuted"),
        ({"loads": 2}, 31, "refuted"),
        ({"loads": 2}, 16, "undecided"),
    ):
        spans, at = [], 0
        for turn in range(32):
            lasts = 3_000 if turn < slow else 300
            for warp in range(4):
                spans += [Span("fetch", at, lasts, 0, warp), Span("use", at + lasts, 400, 0, warp)]
            at += lasts + 400
        made = kernel(spans, {"fetch": {"instructions": 9, **code}, "use": {"instructions": 9}})
        assert verdict(findings(made), "cache misses").verdict == wanted
