"""What the panel of a region says: what the trace has, and nothing where it has nothing."""

from __future__ import annotations

from dataclasses import replace

from tests.support.builders import Span, make_trace
from tests.support.gemm_scene import gemm
from tests.support.sass_kernels import HOISTED, code_of, needs_tools
from tests.support.verified_trace import traced
from warplens.analyse.analysis import Answers
from warplens.analyse.region_counters import RegionCounters
from warplens.analyse.region_sensitivity import RegionSensitivity, Sensitivity
from warplens.trace.model import Trace
from warplens.view.region_facts import region_facts

PLACES = {"load": 0, "math": 1}


def test_a_plain_trace_has_no_facts() -> None:
    assert region_facts(Answers(make_trace([("load", 0, 10)])), PLACES) == {}
    assert region_facts(Answers(make_trace([])), PLACES) == {}


@needs_tools
def test_the_machine_code_check_is_told() -> None:
    facts = region_facts(Answers(traced(code_of(HOISTED))), PLACES)
    assert ("machine code", "`load` did not time what it marks: its only global load is before its begin.") in facts[0]


def test_stalls_and_slopes_name_the_kernel_where_there_are_several() -> None:
    made = make_trace([Span("load", 0, 10), Span("math", 100, 5, kernel="other", launch=1)])
    slope = RegionSensitivity("kernel", "", "load", 0.5, 0.4, 0.6, "partly hidden")
    trace = Trace(made.spans, replace(made.meta, sensitivity=Sensitivity((slope,)).to_json()))
    zeros = dict.fromkeys(("executed", "threads", "sectors", "sectors_ideal", "wavefronts", "conflicts"), 0.0)
    counted = RegionCounters(
        "other",
        "math",
        "ncu",
        "lines",
        80.0,
        0.8,
        80.0,
        bytes=0.0,
        flops=0.0,
        stalls={"long_scoreboard": 60.0},
        **zeros,
    )
    facts = region_facts(Answers(trace), PLACES, [counted])
    assert facts[0] == [("slope measured with delays (kernel)", "0.50 (0.40 to 0.60) partly hidden")]
    assert facts[1] == [("stalls (other)", "80.0 % of the samples; 75.0 % of them stalled by long_scoreboard")]


def test_a_wait_names_what_it_waits_for() -> None:
    trace = gemm(tiles=8, steps=4, sms=2)
    places = {name: at for at, name in enumerate(trace.regions)}
    facts = dict(region_facts(Answers(trace), places)[places["wait full"]])
    assert facts["waits for"].startswith("load ")
    assert facts["source"] == trace.meta.locations["wait full"].rsplit("/", 1)[-1]
