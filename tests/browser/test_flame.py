"""The flame view: its tree is the trace's nesting, for all warps and one, and it is linked with the timeline."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.builders import Span, make_trace
from tests.support.gemm_scene import gemm
from warplens.analyse.region_sensitivity import RegionSensitivity, Sensitivity
from warplens.trace.model import Trace

if TYPE_CHECKING:
    from tests.support.chromium import Page

Show = Callable[..., "Page"]
NODES = """(() => {
  const {tree} = warplens.panels[0].flame;
  const path = (node) => node.region < 0 ? [] : [...path(node.parent), warplens.report.regions[node.region].name];
  return tree.nodes.map((node) => [path(node).join("/"), node.count, node.cycles]);
})()"""


@pytest.fixture(scope="module")
def trace() -> Trace:
    return gemm(tiles=40, steps=6, sms=12)


def nesting(trace: Trace) -> dict[str, tuple[int, int]]:
    """By path of region names: how many spans, and their cycles."""
    rows = trace.spans.to_pylist()
    count: Counter[str] = Counter()
    cycles: Counter[str] = Counter()
    paths: list[str] = []
    for row in rows:
        above = f"{paths[row['parent']]}/" if row["parent"] >= 0 else ""
        paths.append(above + row["region"])
        if row["kind"] == "span" and row["dur_ns"] > 0:
            count[paths[-1]] += 1
            cycles[paths[-1]] += row["dur_cycles"]
    return {path: (count[path], cycles[path]) for path in count}


def drawn(page: Page) -> dict[str, tuple[int, int]]:
    page.run("warplens.panels[0].flame.build()")
    return {path: (count, round(cycles)) for path, count, cycles in page.run(NODES)}


def choose(page: Page, value: str) -> None:
    page.run(f"(warplens.panels[0].flame.picker.value = '{value}', 1)")


def test_all_warps_and_one_warp_have_the_traces_nesting(show: Show, trace: Trace) -> None:
    page = show(trace)
    assert drawn(page) == nesting(trace)
    choose(page, "1")
    assert drawn(page) == nesting(trace.select(warp=1))
    choose(page, "selected")
    page.run("warplens.panels[0].choose(0)")
    block, warp = int(trace.numpy("block")[0]), int(trace.numpy("warp")[0])
    assert drawn(page) == nesting(trace.select(block=block, warp=warp))
    choose(page, "")
    page.run("warplens.timelines[0].pick(warplens.timelines[0].tree.roots[3])")
    assert drawn(page) == nesting(trace.select(sm=3))


def test_widths_are_shares_and_children_are_below_their_parents(show: Show) -> None:
    spans = [Span("outer", 0, 60), Span("inner", 10, 30), Span("rest", 60, 40)]
    page = show(make_trace(spans))
    page.run("warplens.panels[0].flame.build()")
    box = "[b.textContent, b.offsetTop, b.style.left, b.style.width]"
    script = f"[...document.querySelectorAll('.icicle button')].map((b) => {box})"
    assert page.run(script) == [["outer", 0, "0%", "60%"], ["inner", 24, "0%", "30%"], ["rest", 0, "60%", "40%"]]
    page.run("document.querySelector('.icicle button').dispatchEvent(new Event('dblclick'))")
    assert page.run(script) == [["outer", 0, "0%", "100%"], ["inner", 24, "0%", "50%"]]
    note = page.run("document.querySelector('.flame-head .note').textContent")
    assert "0.0 % outside every region, from each warp's first mark to its last" in note


def test_a_click_lights_the_spans_and_a_selected_span_marks_its_box(show: Show) -> None:
    spans = [Span("outer", 0, 60), Span("load", 10, 30), Span("load", 60, 40)]
    page = show(make_trace(spans))
    page.run("warplens.panels[0].flame.build()")
    page.run("[...document.querySelectorAll('.icicle button')].find((b) => b.offsetTop > 0).click()")
    assert page.run("Array.from(warplens.timelines[0].match)") == [0, 1, 0], "only the load inside of outer"
    page.run("warplens.panels[0].choose(2)")
    assert page.run("document.querySelector('.icicle button.chosen').offsetTop") == 0
    assert page.run("document.querySelector('.icicle button.chosen').textContent") == "load"


def test_the_panel_of_a_region_has_its_measured_slope(show: Show, trace: Trace) -> None:
    measured = RegionSensitivity("pipelined_gemm", "", "mma", 0.93, 0.9, 0.97, "critical")
    page = show(Trace(trace.spans, replace(trace.meta, sensitivity=Sensitivity((measured,)).to_json())))
    code = "warplens.report.regions.findIndex((region) => region.name === 'mma')"
    page.run(f"(warplens.panels[0].selection.chooseRegion({code}), warplens.panels[0].selection.show())")
    facts = page.run("document.querySelector('.region-facts').textContent")
    assert "0.93 (0.90 to 0.97) critical" in facts
    assert "source" in facts
