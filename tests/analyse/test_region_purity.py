"""Purity of regions in statistics and findings, and what marks cost, from what a trace carries."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import warplens as wl
from tests.support.builders import Span, make_trace
from tests.support.sass_kernels import HOISTED, UNROLLED, code_of, needs_tools
from tests.support.verified_trace import traced
from warplens.analyse.mark_cost import corrected_means, variant_costs
from warplens.analyse.region_purity import cautions, purity_by_region, region_purity, verified_kernels
from warplens.record.cost_keys import ALONE_CYCLES, EMPTY_CYCLES, RECORD_CYCLES, REGION_CYCLES
from warplens.sass.machine_code import MachineCode
from warplens.trace.document import WrongDocument, document_of, parse_document
from warplens.trace.merge import merge
from warplens.trace.schema import LaunchInfo, Meta

COST = {REGION_CYCLES: 2.0, RECORD_CYCLES: 1.0, EMPTY_CYCLES: 6.0, ALONE_CYCLES: 20.0}


@needs_tools
def test_a_region_whose_load_was_moved_out_carries_a_caution() -> None:
    trace = traced(code_of(HOISTED))
    found = region_purity(trace)
    assert found["k", "load"].flag == "its only global load is before its begin"
    assert found["k", "load"].evidence == {
        "purity": 0.0,
        "complete": 0.0,
        "moved_out": "its only global load is before its begin",
    }
    told = cautions(trace)
    assert told["load"] == "`load` did not time what it marks: its only global load is before its begin."
    assert "belong to it" in told["math"]  # loop control was moved into it
    assert cautions(trace, "k") == told
    assert cautions(trace, "another") == {}


@needs_tools
def test_statistics_carry_the_purity_also_by_kernel_and_in_json() -> None:
    trace = traced(code_of(HOISTED))
    rows = trace.stats()
    assert rows["load"].purity == 0.0
    assert rows["load"].moved_out
    assert rows["math"]["purity"] == pytest.approx(1 / 3)
    document = json.loads(json.dumps(rows.to_json(), allow_nan=False))
    assert {row["region"]: row["purity"] for row in document["rows"]}["load"] == 0.0
    assert document["rows"][0]["corrected"] is None
    assert trace.stats(by="kernel")["load"].moved_out == rows["load"].moved_out
    assert [row.region for row in rows.sorted("purity")] == ["math", "load"]


def test_a_trace_without_a_verification_has_no_purity() -> None:
    trace = make_trace([("load", 0, 10)])
    assert region_purity(trace) == {} == cautions(trace)
    row = trace.stats()["load"]
    assert row.purity != row.purity
    assert row.to_json()["purity"] is None
    assert row.moved_out == ""


@needs_tools
def test_the_worst_of_several_variants_counts() -> None:
    one, other = traced(code_of(UNROLLED)), traced(code_of(HOISTED))
    shifted = replace(other.meta, launches=tuple(replace(info, launch=1) for info in other.meta.launches))
    spans = [Span("load", 0, 10, kernel="k"), Span("load", 20, 10, kernel="k", launch=1)]
    both = make_trace(
        spans,
        meta=replace(
            one.meta,
            launches=(*one.meta.launches, *shifted.launches),
            verification={**one.meta.verification, **other.meta.verification},
        ),
    )
    assert len(verified_kernels(both)["k"]) == 2
    assert purity_by_region(both)["load"].flag
    # A part of the trace is judged by its own launches.
    assert purity_by_region(both.select(launch=0))["math"].purity == 1.0


@needs_tools
def test_a_verification_survives_the_file_and_merging(tmp_path: Path) -> None:
    trace = traced(code_of(HOISTED))
    trace.save(tmp_path / "t.warplens")
    loaded = wl.load(tmp_path / "t.warplens")
    assert loaded.stats()["load"].moved_out == trace.stats()["load"].moved_out
    assert loaded.verify().keys() == trace.verify().keys()
    other = make_trace([("x", 0, 1)], meta=Meta(launches=(LaunchInfo(0, "x", rank=1),)))
    assert merge([loaded, other]).meta.verification == loaded.meta.verification


@needs_tools
def test_a_damaged_verification_is_refused_with_its_key() -> None:
    meta = traced(code_of(HOISTED)).meta
    document = json.loads(document_of(meta))
    key = next(iter(document["verification"]))
    document["verification"][key]["regions"][0]["kept"] = "many"
    with pytest.raises(WrongDocument, match="verification"):
        parse_document(json.dumps(document).encode())


@needs_tools
def test_what_the_marks_cost_a_variant() -> None:
    code = code_of(HOISTED)
    extra = {"registers": 72, "registers_plain": 40, "spills": 8, "shared_bytes_kernel": 0}
    (cost,) = variant_costs(traced(code, extra=extra))
    assert (cost.registers, cost.registers_plain, cost.spills) == (72, 40, 8)
    assert cost.blocks == 7  # 65,536 registers hold 7 blocks of 128 threads with 72 each
    assert cost.blocks_plain == 12
    assert cost.instructions is not None
    assert cost.own is not None
    assert 0 < cost.own < cost.instructions
    (unknown,) = variant_costs(traced(MachineCode("k", missing="gone")))
    assert (unknown.own, unknown.registers, unknown.blocks) == (None, None, None)


def test_a_mean_is_corrected_by_its_own_marks_within_an_interval() -> None:
    info = LaunchInfo(0, "kernel", cost=COST)
    spans = [Span("outer", 0, 100, cycles=100), Span("inner", 20, 40, cycles=40), Span("inner", 70, 20, cycles=20)]
    trace = make_trace(spans, meta=Meta(launches=(info,)))
    found = corrected_means(trace)
    outer, inner = found["outer"], found["inner"]
    assert (outer.records, inner.records) == (4.0, 0.0)
    assert outer.corrected == trace.time_shift()[0] < 100
    assert outer.marks == 100 - outer.corrected
    assert outer.low == pytest.approx(100 - 6.0 - 4 * 20.0)
    assert outer.high == 100
    assert inner.low < inner.corrected < inner.mean < inner.high
    rows = trace.stats(corrected=True)
    assert rows["outer"].corrected == outer.corrected
    assert rows["outer"].corrected_low <= rows["outer"].corrected <= rows["outer"].corrected_high
    assert trace.stats()["outer"].corrected != trace.stats()["outer"].corrected  # only when asked for


def test_without_a_calibration_no_mean_is_corrected() -> None:
    assert corrected_means(make_trace([("load", 0, 10)])) == {}
