"""Where a finding's evidence is: the launch, the stretch of time, and the warp that shows it best."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.finding import Finding
from warplens.analyse.finding_place import finding_place
from warplens.decode.trace_loader import load
from warplens.trace.model import Trace

CAPTURE = Path(__file__).resolve().parents[1] / "golden" / "captures" / "triton_matmul.wlcap"


def finding(kind: str = "cache misses", **more: object) -> Finding:
    return Finding(kind, "what", "advice", "kernel", **more)  # type: ignore[arg-type]


def two_launches() -> Trace:
    """The second launch is longer; in it, block 1 spends most time in `load`, its warp 1 more than its warp 0."""
    spans = [
        Span(region, 10_000 + begin, length, launch=1, block=block, warp=warp, sm=block)
        for block, warp, region, begin, length in (
            (0, 0, "load", 0, 50),
            (0, 0, "work", 50, 300),
            (1, 0, "load", 100, 40),
            (1, 0, "load", 200, 40),
            (1, 1, "load", 120, 200),
            (2, 0, "work", 60, 900),
        )
    ]
    return make_trace([Span("load", 0, 90), *spans])


def test_a_region_leads_to_the_block_where_it_took_most_time() -> None:
    place = finding_place(finding(region="load"), two_launches())
    assert place is not None
    assert (place.launch, place.block, place.warp) == (1, 1, 1)
    assert (place.begin_ns, place.end_ns) == (10_100, 10_320)


def test_a_region_that_took_no_time_still_has_a_place() -> None:
    work = Span("work", 10_000, 50, block=1)
    place = finding_place(finding(region="load"), make_trace([work, Span("load", 10_020, 0, block=3)]))
    assert place is not None
    assert (place.block, place.begin_ns, place.end_ns) == (3, 10_020, 10_021)


def test_named_blocks_warps_and_sms_restrict_the_place() -> None:
    place = finding_place(finding(region="load", warps=[0], blocks=[1, 99]), two_launches())
    assert place is not None
    assert (place.block, place.warp, place.warps, place.blocks) == (1, 0, (0,), (1,))
    assert (place.begin_ns, place.end_ns) == (10_100, 10_240)
    alone = finding_place(finding(blocks=[2]), two_launches())
    assert alone is not None
    assert (alone.block, alone.begin_ns, alone.end_ns) == (2, 10_060, 10_960)


@pytest.mark.parametrize(
    ("kind", "begin", "end", "block"),
    [("last wave", 10_320, 10_960, 2), ("block imbalance", 10_320, 10_960, 2), ("launch ramp", 10_000, 10_125, 1)],
)
def test_the_ends_of_a_launch_lead_there(kind: str, begin: int, end: int, block: int) -> None:
    place = finding_place(finding(kind), two_launches())
    assert place is not None
    assert (place.begin_ns, place.end_ns, place.block) == (begin, end, block)


def test_uneven_blocks_lead_to_the_end_of_the_longest_also_where_it_is_named() -> None:
    place = finding_place(finding("block imbalance", blocks=[2], region="work"), two_launches())
    assert place is not None
    assert (place.begin_ns, place.end_ns, place.block, place.blocks) == (10_320, 10_960, 2, (2,))


def test_a_kernel_without_spans_has_no_place() -> None:
    assert finding_place(Finding("cache misses", "", "", "other kernel"), two_launches()) is None


def test_every_finding_of_a_real_trace_has_a_place_inside_a_launch() -> None:
    trace = load(CAPTURE)
    found = trace.findings()
    for one in [*found, *found.undecided]:
        place = finding_place(one, trace)
        assert place is not None, one.kind
        launch = next(info for info in trace.meta.launches if info.launch == place.launch)
        assert launch.begin_ns <= place.begin_ns < place.end_ns
        assert len(trace.select(launch=place.launch, block=place.block, warp=place.warp)), one.kind
