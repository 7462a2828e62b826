"""The engine: ranking, consequences, what is withheld, undecided or refuted; and every way to ask says the same."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.finding import NOTHING_TO_FIX, Finding, Gain
from warplens.analyse.finding_text import evidence_text, gain_text
from warplens.analyse.findings import findings
from warplens.analyse.known_facts import KnownFacts
from warplens.analyse.ncu import NcuKernel
from warplens.analyse.profiling_cost import profiling_cost
from warplens.analyse.region_sensitivity import RegionSensitivity, Sensitivity
from warplens.analyse.sm_clock import sm_clock
from warplens.analyse.trace_quality import clock_line
from warplens.commands import main
from warplens.decode.trace_loader import load
from warplens.record.capture import VARIANT
from warplens.record.cost_keys import ALONE_CYCLES, RECORD_CYCLES
from warplens.trace.model import Trace
from warplens.trace.schema import ClockFit, Meta

GOLDEN = Path(__file__).resolve().parent.parent / "golden"


def imbalanced(error_ns: float = 1.0, cost: dict[str, float] | None = None) -> Trace:
    """40 blocks of 100 µs of which one takes 140."""
    spans = [Span("work", 0, 140_000 if block == 3 else 100_000, block=block, sm=block) for block in range(40)]
    trace = make_trace(spans)
    launches = tuple(replace(info, cost=cost or {}) for info in trace.meta.launches)
    return Trace(trace.spans, replace(trace.meta, launches=launches, clock=ClockFit(residual_p99_ns=error_ns)))


def test_what_is_below_the_clock_error_is_withheld() -> None:
    sure = findings(imbalanced(1.0))[0]
    assert (sure.kind, sure.withheld) == ("block imbalance", "")
    assert sure.gain_ns.low < 39_000 <= sure.gain_ns.high
    (unsure,) = findings(imbalanced(60_000.0)).withheld
    assert "within the clock alignment error of 60.0 µs" in unsure.withheld


def test_what_is_below_the_profilers_own_cost_is_withheld() -> None:
    (held,) = findings(imbalanced(1.0, {"slowdown": 1.8})).withheld
    assert "below the profiling overhead of 44.4 %" in held.withheld
    assert findings(imbalanced(1.0, {"slowdown": 1.02}))[0].kind == "block imbalance"


def test_a_calibration_tells_the_cost_too() -> None:
    """40 spans, two records each of 10 cycles, in 8.08 million cycles of warp time."""
    assert profiling_cost(imbalanced(1.0, {RECORD_CYCLES: 10.0}), "kernel") == pytest.approx(800 / 8_080_000)
    unhidden = {RECORD_CYCLES: 0.0, ALONE_CYCLES: 20.0}
    assert profiling_cost(imbalanced(1.0, unhidden), "kernel") == pytest.approx(1600 / 8_080_000), "hidden cost counts"
    assert profiling_cost(imbalanced(), "kernel") is None


def test_findings_come_by_what_their_kernels_cost_together() -> None:
    """The same loss in a kernel that takes ten times as long matters ten times as much."""
    spans = []
    for launch, (kernel, size) in enumerate([("small", 100_000), ("large", 1_000_000)]):
        for block in range(16):
            lasts = size * 2 if block == 0 else size
            spans.append(Span("work", launch * 5_000_000, lasts, block=block, sm=block, launch=launch, kernel=kernel))
    found = findings(make_trace(spans))
    assert [(one.kernel, one.kind) for one in found] == [("large", "block imbalance"), ("small", "block imbalance")]
    assert found[0].gain == pytest.approx(found[1].gain)
    assert [one.rank for one in found] == sorted((one.rank for one in found), reverse=True)
    assert {one.kernel for one in found.of("small")} == {"small"}


def test_every_finding_says_what_where_how_sure_and_what_would_refute_it() -> None:
    for path in sorted((GOLDEN / "findings").glob("*.warplens")) + sorted((GOLDEN / "attention").glob("*.warplens")):
        found = findings(load(path))
        assert len(found), path.name
        for one in (*found, *(below for each in found for below in each.consequences)):
            assert one.what.endswith((".", ":")), one.what
            assert one.advice, one.kind
            assert one.refuted_by, one.kind
            assert one.confidence in ("low", "medium", "high")
            assert 0 <= one.gain.low <= one.gain.high <= 1
            assert one.gain_ns.high == pytest.approx(one.gain.high * float(one.evidence["kernel_ns"].value), rel=0.2)
            assert one.evidence["block_ns"].samples >= 8
        assert all(one.advice for one in found.undecided)
        json.dumps(found.to_json())


def test_an_empty_trace_has_no_findings() -> None:
    assert len(findings(make_trace([]))) == 0
    assert len(findings(make_trace([Span("tick", 5, kind="instant")], meta=Meta()))) == 0


def on_h200(spans: list[Span], **extra: object) -> Trace:
    made = make_trace(spans)
    launches = tuple(replace(info, extra=extra) for info in made.meta.launches)
    devices = {"0": {"name": "NVIDIA H200", "capability": "9.0", "sm_count": 132, "clock_mhz": 1980.0}}
    return Trace(made.spans, replace(made.meta, launches=launches, devices=devices))


def loads_and_work(warps: int = 1) -> Trace:
    """One warp per SM that loads and works in turn, for 100 µs."""
    return on_h200(
        [
            Span(region, 10_000 * at, 10_000, block, warp)
            for block in range(132)
            for warp in range(warps)
            for at, region in enumerate(["load", "work"] * 5)
        ]
    )


def test_a_kernel_on_its_roof_gets_no_latency_advice() -> None:
    assert findings(loads_and_work())[0].kind == "too little in flight"
    # 100 µs at 4800 GB/s are 480 MB.
    (only,) = findings(loads_and_work(), given=KnownFacts(bytes=450e6))
    assert (only.kind, only.confidence) == (NOTHING_TO_FIX, "high")
    assert "memory bound, at 93.8 % of its roof" in only.what
    busy = NcuKernel("kernel", memory=0.95, compute=0.2)
    assert findings(loads_and_work(), given=KnownFacts(ncu=(busy,)))[0].kind == NOTHING_TO_FIX
    refuted = {one.kind: one.what for one in findings(loads_and_work(), given=KnownFacts(bytes=450e6)).refuted}
    assert "93.8 % of its memory roof" in refuted["too little in flight"]


def test_a_gain_is_never_larger_than_the_room_below_the_roof() -> None:
    free, bound = (findings(loads_and_work(), given=KnownFacts(bytes=moved))[0] for moved in (100e6, 340e6))
    assert free.gain.high > 0.4
    assert bound.gain.high <= 1 - 340 / 480 + 1e-9


def test_consequences_are_below_their_cause() -> None:
    found = findings(load(GOLDEN / "attention" / "low_occupancy.warplens"))
    assert found[0].kind == "low occupancy"
    assert [one.kind for one in found[0].consequences] == ["too little in flight"]
    assert "too little in flight" not in [one.kind for one in found]


def test_nothing_to_fix_is_an_answer_and_comes_before_what_is_hardly_worth_it() -> None:
    found = findings(load(GOLDEN / "findings" / "hidden.warplens"))
    assert [one.kind for one in found] == [NOTHING_TO_FIX]
    assert found.problems == ()
    decode = findings(load(GOLDEN / "attention" / "decode.warplens"), given=KnownFacts(bytes=134742016))
    assert decode[0].kind == NOTHING_TO_FIX


def test_variants_of_a_kernel_have_findings_of_their_own() -> None:
    spans = []
    for launch in range(2):
        for block in range(16):
            late = 300_000 if launch and block == 0 else 100_000
            spans.append(Span("work", launch * 1_000_000, late, block=block, sm=block, launch=launch))
    made = make_trace(spans)
    launches = tuple(replace(info, extra={VARIANT: {"BLOCK": info.launch}}) for info in made.meta.launches)
    found = findings(Trace(made.spans, replace(made.meta, launches=launches)))
    assert [(one.kernel, one.kind) for one in found] == [
        ("kernel[BLOCK=1]", "block imbalance"),
        ("kernel[BLOCK=0]", NOTHING_TO_FIX),
    ]


def test_host_times_are_labelled_and_get_no_gpu_advice(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = imbalanced()
    launches = tuple(replace(info, clock="cpu") for info in made.meta.launches)
    trace = Trace(made.spans, replace(made.meta, launches=launches))
    assert [one.kind for one in findings(trace)] == ["host time"]
    trace.save(tmp_path / "t.warplens")
    for words in (["stats"], ["findings"], ["info"], ["stats", "--findings"], ["diagnose"]):
        assert main([words[0], str(tmp_path / "t.warplens"), *words[1:]]) == 0
        out = capsys.readouterr().out
        assert "times are those of the CPU" in out, words
        assert "imbalance" not in out, words


def test_a_part_of_a_trace_gets_no_finding_from_what_was_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.warplens"
    imbalanced().save(path)
    part = load(path).select(block=range(20))
    part.save(tmp_path / "part.warplens")
    for one in (part, load(tmp_path / "part.warplens"), load(path, time=(0, 1000)), load(path, block=range(20))):
        found = findings(one)
        assert ([*found], [what.kind for what in found.undecided]) == ([], ["selection"])
    assert "selected by block" in findings(part).undecided[0].what
    assert [one.kind for one in findings(load(path).select(launch=0))] == ["block imbalance"]
    assert main(["stats", str(GOLDEN / "attention/serialised.warplens"), "--findings", "--region", "store"]) == 0
    filtered = capsys.readouterr().out
    assert main(["stats", str(GOLDEN / "attention/serialised.warplens"), "--findings"]) == 0
    assert filtered == capsys.readouterr().out


def kinds(document: dict[str, object]) -> list[tuple[str, float, float]]:
    return [(one["kind"], one["gain"]["low"], one["gain"]["high"]) for one in document["findings"]]


@pytest.mark.parametrize(
    "name", ["attention/serialised", "attention/low_occupancy", "findings/tail", "findings/hidden"]
)
def test_every_way_to_ask_says_the_same_in_the_same_order(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(GOLDEN / f"{name}.warplens")
    said = []
    for words in (["findings", path], ["stats", path, "--findings"], ["diagnose", path]):
        assert main([*words, "--json"]) == 0
        document = json.loads(capsys.readouterr().out)
        said.append(kinds(document["diagnoses"][0] if "diagnoses" in document else document))
    assert said[0] == said[1] == said[2]
    assert [(one.kind, one.gain) for one in load(path).findings()] == [(k, Gain(a, b)) for k, a, b in said[0]]
    from warplens.analyse.analysis import Answers
    from warplens.view.finding_cards import FindingCards

    answers = Answers(load(path))
    group = FindingCards("A", answers, answers.trace, {}).group()
    assert [one["kind"] for one in [*group["shown"], *group["rest"]]] == [k for k, _, _ in said[0]]


def test_the_verb_names_one_kernel_lists_what_was_refuted_and_fails_on_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "t.warplens"
    imbalanced().save(path)
    assert main(["findings", str(path), "--kernel", "kernel", "--all"]) == 0
    out = capsys.readouterr().out
    assert "1. block imbalance: saves 17.5 to 35.9 %" in out
    assert "refuted (last wave): " in out
    assert main(["findings", str(path), "--fail"]) == 3
    assert "kernel: block imbalance" in capsys.readouterr().err
    assert main(["findings", str(path), "--roof", "fp61"]) == 2


def test_a_falling_clock_is_seen_unless_it_is_above_the_devices_limit() -> None:
    """The same work of 1.9 million cycles: at 1900 MHz, then at 1500."""
    spans, at = [], 0
    for i in range(40):
        lasts = 10_000 if i < 20 else 12_667
        spans.append(Span("work", at, lasts, cycles=19_000))
        at += lasts
    trace = make_trace(spans)
    answer = sm_clock(trace)["kernel"]
    assert answer.mhz_min == pytest.approx(1500, rel=0.01)
    found = [one for one in findings(trace) if one.kind == "clock drop"]
    assert "dropped to 1,500 MHz" in found[0].what
    slow = Trace(trace.spans, replace(trace.meta, devices={"0": {"clock_mhz": 1800.0}}))
    undecided = findings(slow)
    assert "clock drop" not in [one.kind for one in undecided]
    assert (
        "the device's limit is 1,800 MHz" in next(one for one in undecided.undecided if one.kind == "clock drop").what
    )


def test_rates_within_their_error_show_no_throttling() -> None:
    spans = [Span("work", 10_000 * i, 10_000, cycles=19_000 if i < 20 else 17_000) for i in range(40)]
    trace = make_trace(spans)
    for error, seen in ((10.0, 1), (120.0, 0)):
        unsure = Trace(trace.spans, replace(trace.meta, clock=replace(trace.meta.clock, mhz_error=error, mhz_max=1900)))
        assert len([one for one in findings(unsure) if one.kind == "clock drop"]) == seen
        assert f"error {error:.1f}" in clock_line(unsure)


def test_a_measured_slope_limits_what_a_region_can_gain() -> None:
    made = loads_and_work()
    free = findings(made)[0]
    assert (free.kind, free.region) == ("too little in flight", "load")
    for slope, kind in ((0.5, "too little in flight"), (0.01, NOTHING_TO_FIX)):
        one = RegionSensitivity("kernel", "kernel", "load", slope, slope - 0.01, slope + 0.01)
        measured = Trace(made.spans, replace(made.meta, sensitivity=Sensitivity((one,)).to_json()))
        found = findings(measured)
        assert found[0].kind == kind
        if slope == 0.5:
            assert found[0].gain.high == pytest.approx(0.51 * free.gain.high)
            assert found[0].evidence["measured_slope"] == 0.5
        else:
            refuted = {one.kind: one.what for one in found.refuted}
            assert "delays in `load` do not reach the kernel's end" in refuted["too little in flight"]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("last wave", "saves 10.0 to 30.0 % (1.00 µs to 3.00 µs per launch)"),
        ("nothing to fix", "at most 30.0 %"),
        ("undecided", "may save up to 30.0 %"),
        ("unmarked time", "may save up to 30.0 %"),
    ],
)
def test_only_what_is_supported_promises_to_save(kind: str, text: str) -> None:
    one = Finding(kind, "what", "advice", "kernel", gain=Gain(0.1, 0.3), gain_ns=Gain(1_000, 3_000))
    assert gain_text(one) == text


def test_a_gain_that_may_be_nothing_is_called_up_to() -> None:
    one = Finding("last wave", "what", "advice", "kernel", gain=Gain(0.0004, 0.3), gain_ns=Gain(4, 3_000))
    assert gain_text(one) == "saves up to 30.0 % (3.00 µs per launch)"


def test_shares_are_percentages_and_counts_of_warps_are_not() -> None:
    evidence = {"fetch_without_work": 0.5, "fetching_warps_per_sm": 0.94, "sm_time_without_work": 0.3, "purity": 1.0}
    shown = evidence_text(Finding("k", "what", "advice", "kernel", evidence=evidence))
    assert shown == (
        "fetch without work 50.0 %; fetching warps per sm 0.94; sm time without work 30.0 %; purity 100.0 %"
    )
