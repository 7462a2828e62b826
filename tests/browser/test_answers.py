"""The report answers: findings lead to their evidence, selections have statistics, and what is missing is said."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.builders import Span, make_trace
from tests.support.gemm_scene import gemm
from warplens.analyse.finding_place import finding_place
from warplens.decode.trace_loader import load
from warplens.trace.model import Trace
from warplens.view.html import ReportOptions

if TYPE_CHECKING:
    from tests.support.chromium import Page

Show = Callable[..., "Page"]
CAPTURES = Path(__file__).parents[1] / "golden" / "captures"
TIMELINE = "warplens.timelines[0]"


@pytest.fixture(scope="module")
def trace() -> Trace:
    return gemm(tiles=40, steps=6, sms=12)


def uneven() -> Trace:
    """40 blocks of 100 µs, of which one takes 140: its imbalance is a finding."""
    return make_trace([Span("work", 0, 140_000 if block == 3 else 100_000, block=block) for block in range(40)])


def window(page: Page) -> list[float]:
    return page.run(f"[{TIMELINE}.begin, {TIMELINE}.end]")


def go(page: Page, address: str) -> None:
    changed = "new Promise((done) => addEventListener('hashchange', () => done(1), {once: true}))"
    page.run(f"(() => {{ const done = {changed}; location.hash = {json.dumps(address)}; return done; }})()")
    page.frame()


def statistics(page: Page) -> dict[str, dict[str, Any]]:
    """What the column beside the timeline says of each region."""
    page.run("warplens.panels[0].selection.show()")
    script = """[...document.querySelectorAll('.selection tbody tr')].map((row) =>
      [row.cells[0].textContent, [...row.cells].slice(1).map((cell) => cell.textContent)])"""
    names = ("count", "share", "mean", "p50", "p95", "p99")
    return {name: dict(zip(names, cells, strict=True)) for name, cells in page.run(script)}


# ---- findings ------------------------------------------------------------------------------------------------------


def test_a_click_on_a_finding_zooms_to_its_evidence_and_back(show: Show) -> None:
    trace = uneven()
    found = trace.findings()[0]
    place = finding_place(found, trace)
    assert found.kind == "block imbalance"
    assert place is not None
    page = show(trace, scroll=False)
    page.run("scrollTo({top: 10, behavior: 'instant'})")
    before = [*window(page), page.run(f"{TIMELINE}.scroll")]
    page.run("document.querySelector('li[data-finding] a.show').click()")
    page.wait_for("document.querySelector('li.chosen')")
    assert page.run("location.hash") == "#finding=1"
    margin = (place.end_ns - place.begin_ns) * 0.04
    assert window(page) == pytest.approx([place.begin_ns - margin, place.end_ns + margin])
    assert page.run(f"{TIMELINE}.tree.roots.filter((sm) => sm.open).map((sm) => sm.label)").count("SM 3") == 1
    page.run("document.querySelector('li.chosen a.show').click()")
    page.wait_for("!document.querySelector('li.chosen')")
    assert [*window(page), page.run(f"{TIMELINE}.scroll")] == pytest.approx(before)
    assert page.run("scrollY") == 10, "the page itself stays where it was"
    page.run("history.back()")
    page.wait_for("document.querySelector('li.chosen')")
    page.run("history.forward()")
    page.wait_for("!document.querySelector('li.chosen')")
    page.run("document.querySelector('li[data-finding] p').click()")
    page.wait_for("document.querySelector('li.chosen')")
    page.run(f"{TIMELINE}.canvas.focus()")
    page.key("Escape")
    page.wait_for("!document.querySelector('li.chosen')")
    assert window(page) == pytest.approx(before[:2])


def test_a_shared_link_opens_at_its_finding_and_lights_its_spans(show: Show) -> None:
    trace = load(CAPTURES / "triton_matmul.wlcap")
    found = trace.findings()
    number, one = next((at, each) for at, each in enumerate([*found, *found.undecided], 1) if each.region)
    place = finding_place(one, trace)
    assert place is not None
    page = show(trace, address=f"#finding={number}")
    assert page.run("document.querySelector('li.chosen').dataset.finding") == str(number)
    assert page.run(f"{TIMELINE}.launch?.launch ?? {place.launch}") == place.launch
    lit = page.run(f"[...{TIMELINE}.match.keys()].filter((row) => {TIMELINE}.match[row])")
    inside = trace.codes("region")[0] == trace.regions.index(one.region)
    inside &= trace.numpy("launch") == place.launch
    assert lit == np.flatnonzero(inside).tolist()
    margin = (place.end_ns - place.begin_ns) * 0.04
    assert window(page) == pytest.approx([place.begin_ns - margin, place.end_ns + margin])
    go(page, "finding=1")
    go(page, "timeline")
    assert page.run(f"{TIMELINE}.match") is None


def test_the_second_of_two_traces_has_its_own_findings(show: Show) -> None:
    page = show(gemm(tiles=20, steps=4, sms=6), uneven())
    go(page, "finding=B1")
    assert (
        page.run("document.querySelector('li.chosen').closest('.side, .finding-list').closest('.panel').dataset.trace")
        == "1"
    )
    begin, end = page.run("[warplens.timelines[1].begin, warplens.timelines[1].end]")
    assert 95_000 < begin < 100_000 < 140_000 < end < 145_000


# ---- the first screen ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["triton_matmul", "gluon_matmul", "cute_gemm"])
def test_the_timeline_and_the_first_finding_are_on_the_first_screen(show: Show, name: str) -> None:
    page = show(load(CAPTURES / f"{name}.wlcap"), width=1400, height=900, scroll=False)
    box = page.run(f"{TIMELINE}.canvas.getBoundingClientRect().toJSON()")
    assert box["bottom"] <= 900
    assert box["height"] >= 320
    finding = page.run("document.querySelector('.findings li').getBoundingClientRect().toJSON()")
    assert finding["top"] < 700
    assert finding["left"] > box["right"] - 1


def test_no_table_is_cut_off_at_1400(show: Show, trace: Trace) -> None:
    page = show(trace, width=1400, height=900)
    script = "[...document.querySelectorAll('#statistics .scroll')].map((box) => box.scrollWidth - box.clientWidth)"
    assert page.run(script) == [0]


def test_a_heat_map_fills_its_card_and_starts_with_the_busiest_region(show: Show, trace: Trace) -> None:
    page = show(trace)
    gaps = page.run(
        """[...document.querySelectorAll('canvas.heat')].map((canvas) => {
          const card = canvas.closest('.heat-map'), tip = card.querySelector('.tip');
          return card.getBoundingClientRect().bottom - tip.getBoundingClientRect().bottom;
        })"""
    )
    assert gaps
    assert max(gaps) < 12
    busiest = next(iter(trace.stats())).region
    assert page.run("document.querySelector('select[aria-label=Region]').selectedOptions[0].textContent") == busiest
    assert page.run("document.querySelectorAll('.heat-map .matrix thead th')[1].textContent") == busiest


def test_an_axis_never_repeats_a_label(show: Show) -> None:
    """A short launch a second after the trace's origin: two digits would be the same at every tick."""
    spans = [Span("a", 10**9 + 50 * i, 40, block=i % 3, warp=i % 2) for i in range(60)]
    page = show(make_trace(spans))
    script = """(() => {
      const seen = new Map(), draw = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        if (/ [nµm]?s$/.test(text)) seen.set(this.canvas, [...(seen.get(this.canvas) ?? []), text]);
        draw.call(this, text, x, y);
      };
      document.getElementById("theme").click();
      warplens.timelines[0].draw();
      CanvasRenderingContext2D.prototype.fillText = draw;
      return [...seen.values()];
    })()"""
    axes = page.run(script)
    assert len(axes) >= 2
    for labels in axes:
        assert len(set(labels)) == len(labels), labels


def test_the_legend_has_only_regions_with_spans(show: Show, trace: Trace) -> None:
    names = set(trace.regions)
    only = trace.select(region=["load", "mma"])
    assert set(only.regions) == names, "the trace still knows the other names"
    page = show(only)
    assert set(page.run("[...document.querySelectorAll('.chip')].map((c) => c.textContent)")) == {"load", "mma"}


def test_a_measurement_that_leaves_the_screen_ends(show: Show, trace: Trace) -> None:
    page = show(trace)
    begin, end = window(page)
    third = (end - begin) / 3
    page.run(f"warplens.panels[0].selectTime({begin + third / 4}, {begin + third / 2})")
    page.run(f"{TIMELINE}.setWindow({begin}, {begin + third})")
    assert page.run(f"{TIMELINE}.measure !== null")
    page.run(f"{TIMELINE}.setWindow({begin + 2 * third}, {end})")
    assert page.run(f"{TIMELINE}.measure") is None
    assert "measured" not in page.run("document.querySelector('.status').textContent")


# ---- what is not shown ---------------------------------------------------------------------------------------------


def test_what_is_left_out_is_said_at_the_top(show: Show, trace: Trace) -> None:
    page = show(trace, options=ReportOptions(limit=len(trace) // 3), scroll=False)
    text = page.run("document.querySelector('.coverage').textContent")
    blocks = len({*zip(trace.numpy("launch").tolist(), trace.numpy("block").tolist(), strict=True)})
    kept = page.run(f"{TIMELINE}.tree.roots.flatMap((sm) => sm.children).length")
    assert text.startswith(f"{kept} of {blocks} blocks shown in the timeline, ")
    assert f"{100 * page.run('warplens.report.traces[0].shown') / len(trace):.0f} % of the spans" in text
    assert "--limit 0" in text
    assert page.run("document.querySelector('.coverage').getBoundingClientRect().bottom") < 400
    assert page.run("document.querySelector('.coverage-line').hidden"), "nothing in the report is filtered out"


def test_what_filters_hide_is_said_and_can_be_shown(show: Show, trace: Trace) -> None:
    page = show(trace)
    page.run("(warplens.panels[0].smBox.value = '2-3', warplens.panels[0].smBox.dispatchEvent(new Event('change')))")
    text = page.run("document.querySelector('.coverage-line').textContent")
    inside = np.isin(trace.numpy("sm"), [2, 3])
    blocks = len(set(trace.numpy("block")[inside].tolist())), len(set(trace.numpy("block").tolist()))
    assert text.startswith(
        f"{blocks[0]} of {blocks[1]} blocks shown, {100 * inside.mean():.0f} % of the spans (SMs 2-3)"
    )
    page.run("document.querySelector('.coverage-line button').click()")
    assert page.run("document.querySelector('.coverage-line').hidden")
    assert page.run(f"{TIMELINE}.countShown()") == len(trace)


# ---- selections ----------------------------------------------------------------------------------------------------


def test_without_a_selection_the_statistics_are_the_traces(show: Show, trace: Trace) -> None:
    page = show(trace)
    shown = statistics(page)
    expected = {row.region: row for row in trace.stats()}
    assert set(shown) == set(expected)
    for name, row in expected.items():
        numbers = {each: f"{getattr(row, each):,.0f}" for each in ("count",)}
        assert shown[name]["count"] == numbers["count"]
        assert float(shown[name]["share"].removesuffix(" %")) == pytest.approx(100 * row.share, abs=0.06)
        for each in ("mean", "p50", "p95", "p99"):
            assert float(shown[name][each].replace(",", "")) == pytest.approx(getattr(row, each), abs=0.51), (
                name,
                each,
            )


def test_a_stretch_of_time_and_an_sm_have_their_own_statistics(show: Show, trace: Trace) -> None:
    page = show(trace)
    start, length = trace.numpy("start_ns"), trace.numpy("dur_ns")
    low, high = int(np.percentile(start, 30)), int(np.percentile(start, 60))
    page.run(f"{TIMELINE}.pick({TIMELINE}.tree.roots[4])")
    page.run(f"warplens.panels[0].selectTime({high}, {low})")
    shown = statistics(page)
    inside = (trace.numpy("sm") == 4) & (start < high) & (start + length > low) & trace.of_kind("span")
    inside &= ~trace.numpy("open") & (length > 0)
    names = np.array(trace.column("region").to_pylist())
    assert set(shown) == set(names[inside].tolist())
    for name, row in shown.items():
        cycles = trace.numpy("dur_cycles")[inside & (names == name)]
        assert row["count"] == f"{len(cycles):,}"
        for each, value in zip(("p50", "p95", "p99"), np.percentile(cycles, (50, 95, 99)), strict=True):
            assert float(row[each].replace(",", "")) == pytest.approx(value, abs=0.51)
    assert page.run("document.querySelector('.selection h3').textContent").endswith("· SM 4")
    assert page.run("document.querySelector('[role=tab][aria-selected=true]').textContent") == "Selection"
    assert page.run("document.querySelectorAll('.selection svg.spread path').length") == 1
    page.run(
        "[...document.querySelectorAll('.selection button')].find((b) => b.textContent.startsWith('Clear')).click()"
    )
    assert page.run(f"[{TIMELINE}.measure, {TIMELINE}.picked.size]") == [None, 0]
    page.wait_for(f"warplens.panels[0].flame.count === {TIMELINE}.trace.tracks.count")


def test_a_region_is_selected_by_its_row(show: Show, trace: Trace) -> None:
    page = show(trace)
    statistics(page)
    page.run("[...document.querySelectorAll('.selection td button')].find((b) => b.textContent === 'epilogue').click()")
    statistics(page)
    assert page.run("[...document.querySelectorAll('.selection h3')].at(-1).textContent").startswith("epilogue: ")
    lit = page.run(f"[...{TIMELINE}.match.keys()].filter((row) => {TIMELINE}.match[row]).length")
    assert lit == trace.column("region").to_pylist().count("epilogue")


def test_a_hovered_span_is_described_at_the_pointer(show: Show, trace: Trace) -> None:
    page = show(trace)
    row = trace.column("region").to_pylist().index("epilogue")
    page.run(f"{TIMELINE}.reveal({row})")
    page.frame()
    script = f"""(() => {{
      const box = {TIMELINE}.boxOf({row}), at = {TIMELINE}.canvas.getBoundingClientRect();
      return [at.left + (box.left + box.right) / 2, at.top + box.top + 4];
    }})()"""
    x, y = page.run(script)
    page.hover(x, y)
    tip = page.run("document.querySelector('.tooltip').getBoundingClientRect().toJSON()")
    text = page.run("document.querySelector('.tooltip').textContent")
    assert "epilogue" in text
    assert f"{trace.numpy('dur_cycles')[row]:,} cycles" in text
    assert f"warp {trace.numpy('warp')[row]}" in text
    assert min(abs(tip["left"] - x), abs(tip["right"] - x)) < 30
    assert min(abs(tip["top"] - y), abs(tip["bottom"] - y)) < 30
    page.hover(x, 5)
    assert page.run("document.querySelector('.tooltip').hidden")
