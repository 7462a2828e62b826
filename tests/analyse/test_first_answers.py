"""What warplens once answered wrongly on the traces of this repository, each with what is right."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.findings import findings
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.ncu import parse_ncu
from warplens.analyse.region_tree import region_tree
from warplens.analyse.trace_quality import warnings_of
from warplens.analyse.waits import waits
from warplens.commands import main
from warplens.decode import decode
from warplens.decode.trace_loader import load
from warplens.record.capture import FULL
from warplens.trace.model import Trace
from warplens.trace.schema import LaunchInfo, Losses, Meta

GOLDEN = Path(__file__).resolve().parent.parent / "golden"
ATTENTION = GOLDEN / "attention"


def test_the_serialised_attention_is_not_called_a_ramp() -> None:
    found = findings(load(ATTENTION / "serialised.warplens"))
    assert [one.kind for one in found] == ["serialised section"]
    assert found[0].region == "wait turn"
    assert found[0].gain.low > 0.7


def test_low_occupancy_is_the_problem_wherever_one_asks(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["stats", "--findings"], ["diagnose"], ["findings"]):
        assert main([words[0], str(ATTENTION / "low_occupancy.warplens"), *words[1:]]) == 0
        out = capsys.readouterr().out
        assert "1. low occupancy: saves" in out
        assert "no direct gain" not in out


def test_uncoalesced_leads_with_its_cause_and_holds_the_gain_of_the_repair() -> None:
    """`decode` is the same kernel repaired: 45.0 µs instead of 155.3."""
    (ncu,) = parse_ncu((ATTENTION / "uncoalesced.ncu.csv").read_text())
    first = findings(load(ATTENTION / "uncoalesced.warplens"), given=KnownFacts(ncu=(ncu,)))[0]
    assert (first.kind, first.region) == ("uncoalesced access", "qk")
    assert first.gain.low <= 1 - 45.0 / 155.3 <= first.gain.high


def test_two_speeds_promise_nothing_on_the_memory_roof() -> None:
    found = findings(load(ATTENTION / "decode.warplens"), given=KnownFacts(bytes=134742016))
    assert found[0].kind == "nothing to fix"
    assert not [one for one in (*found, *found.undecided) if one.kind in ("modes", "cache misses")]
    assert "speeds" not in " ".join(one.what for one in found)


def test_the_consumers_of_the_cute_gemm_wait_in_wait_full() -> None:
    answer = waits(load(GOLDEN / "captures" / "cute_gemm.wlcap"))["gemm"]
    sides = {one.side: one for one in answer.roles}
    assert "wait full" in sides["consumer"].waits
    assert "wait empty" in sides["producer"].waits
    assert sides["consumer"].share > 0.1
    assert answer.consumer == sides["consumer"].share


def test_a_clock_above_the_devices_limit_supports_no_power_limit() -> None:
    """`decode` was placed with rates up to 2,008 MHz; the device runs at 1,980 at most."""
    found = findings(load(ATTENTION / "decode.warplens"))
    assert "clock drop" not in [one.kind for one in found]
    (held,) = [one for one in found.undecided if one.kind == "clock drop"]
    assert "the device's limit is 1,980 MHz" in held.what


def test_time_outside_regions_is_reported_with_its_lines() -> None:
    found = findings(load(ATTENTION / "overflowing.warplens"))
    assert [one.kind for one in found][:2] == ["numerical problem", "unmarked time"]
    assert "90.7 % of warp time" in found[1].what
    assert "rows.cu:34-62" in found[1].advice
    assert not [one for one in found if one.region == "store"]


def test_all_gains_are_of_removing_the_cause_and_none_of_making_a_region_faster() -> None:
    found = findings(load(GOLDEN / "captures" / "triton_matmul.wlcap"))
    assert "critical path" not in [one.kind for one in found]
    said = " ".join(one.what for one in found)
    assert "10 % faster" not in said
    assert "depends most on" not in said


def two_kernels() -> Trace:
    """Both kernels have a region `store`; one takes 66 cycles, the other 1,076."""
    spans = [Span("store", 100 * at, 33, launch=0, kernel="a") for at in range(20)]
    spans += [Span("store", 10_000 + 600 * at, 538, launch=1, kernel="b") for at in range(20)]
    made = make_trace(spans)
    places = {"a": {"store": "a.py:1"}, "b": {"store": "b.py:2"}}
    return Trace(made.spans, replace(made.meta, locations={"store": "b.py:2"}, kernel_locations=places))


def test_regions_of_the_same_name_in_different_kernels_are_apart() -> None:
    rows = {row.variant: row for row in two_kernels().stats()}
    assert {name: (row.mean, row.std) for name, row in rows.items()} == {"a": (66, 0), "b": (1076, 0)}
    from warplens.analyse.line_times import line_times

    assert [(one.file, one.cycles) for one in line_times(two_kernels())] == [("a.py", 20 * 66), ("b.py", 20 * 1076)]


def test_the_lines_of_two_kernels_are_kept_apart_when_decoding() -> None:
    from tests.support.synthetic_capture import make_capture

    capture = make_capture(64)
    launch = capture.launches[0]
    region = next(iter(launch.regions))
    launches = [replace(launch, kernel=name, locations={region: f"{name}.py:1"}) for name in "ab"]
    meta = decode(replace(capture, launches=launches)).meta
    name = launch.regions[region]
    assert [meta.locations_of(kernel)[name] for kernel in "ab"] == ["a.py:1", "b.py:1"]


@pytest.mark.parametrize("name", ["triton_matmul", "cute_gemm", "cute_vector_add"])
def test_a_region_has_one_share_in_the_table_and_in_the_tree(name: str) -> None:
    trace = load(GOLDEN / "captures" / f"{name}.wlcap")
    shares = {row.region: row.share for row in trace.stats()}
    for root in region_tree(trace):
        for _, node in list(root.walk())[1:]:
            assert node.share == pytest.approx(shares[node.name], rel=1e-6)


def test_shares_of_two_kernels_agree_too() -> None:
    shares = {row.variant: row.share for row in two_kernels().stats()}
    assert {root.name: root.children[0].share for root in region_tree(two_kernels())} == pytest.approx(shares)


def test_occupancy_sentences_do_not_contradict_one_another(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["occupancy", "--threads", "32", "--registers", "161"]) == 0
    assert "at most 128 registers per thread (now 161) would fit 16 blocks" in capsys.readouterr().out
    assert main(["occupancy", "--threads", "32", "--registers", "128", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["blocks"] == 16
    assert main(["occupancy", "--threads", "256", "--registers", "32", "--json"]) == 0
    assert "is taken" not in json.loads(capsys.readouterr().out)["lift"], "what fits is not what was in use"


def test_a_ring_is_not_told_to_use_a_ring() -> None:
    losses = Losses(records_written=100, records_lost=40, tracks_full=2, most_written=50)
    for extra, advised in (({}, True), ({FULL: "ring"}, False)):
        meta = Meta(launches=(LaunchInfo(0, "k", extra=extra),), losses=losses)
        (line,) = warnings_of(Trace(make_trace([]).spans, meta))
        assert ("full='ring'" in line) == advised
        assert "records_per_warp=50" in line


def test_a_capture_says_that_it_was_recorded_with_a_ring() -> None:
    trace = load(GOLDEN / "cuda_nested_ring_32.wlcap")
    assert trace.meta.launches[0].extra[FULL] == "ring"
    assert not any("full='ring'" in line for line in warnings_of(trace))
