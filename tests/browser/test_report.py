"""The report in a real browser: what it shows equals what the trace says."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.support.barrier_pipeline import run_pipeline
from tests.support.builders import Span, make_trace
from tests.support.gemm_scene import gemm
from warplens import samples
from warplens.analyse.critical_path import critical_path
from warplens.analyse.heatmap import over_time
from warplens.analyse.timeline import strips
from warplens.decode import decode
from warplens.decode.trace_loader import load
from warplens.trace.model import Trace

if TYPE_CHECKING:
    from tests.support.chromium import Page

BUTTONS = "[...document.querySelectorAll('.details .links button')]"
Show = Callable[..., "Page"]
LATE = Path(__file__).parents[1] / "golden" / "captures" / "triton_matmul.wlcap"
"""Its longest launch begins at 517.14 µs: wide labels."""


@pytest.fixture(scope="module")
def trace() -> Trace:
    return gemm(tiles=40, steps=6, sms=12)


def details(page: Page) -> dict[str, str]:
    """What the details panel says, by name."""
    return dict(
        page.run("[...document.querySelectorAll('.details dt')].map((t) => [t.textContent, t.nextSibling.textContent])")
    )


def place(page: Page, row: int) -> tuple[float, float]:
    """The middle of a span on the screen, brought there first."""
    script = f"""(() => {{
      const timeline = warplens.timelines[0];
      timeline.reveal({row});
      const box = timeline.boxOf({row}), at = timeline.canvas.getBoundingClientRect();
      return [at.left + (box.left + box.right) / 2, at.top + box.top + box.height / 2];
    }})()"""
    x, y = page.run(script)
    page.frame()
    return x, y


def canvas(page: Page) -> dict[str, float]:
    return page.run("warplens.timelines[0].canvas.getBoundingClientRect().toJSON()")


def window(page: Page) -> tuple[float, float]:
    return tuple(page.run("[warplens.timelines[0].begin, warplens.timelines[0].end]"))


def choose(page: Page, element: str, value: str) -> None:
    """Set a control as a user would: its value, then the event."""
    page.run(
        f"(() => {{ const e = {element}; e.value = {json.dumps(value)}; e.dispatchEvent(new Event('change')); }})()"
    )


def whole(value: float) -> str:
    return f"{value:,.0f}"


def test_every_column_arrives_exactly(show: Show) -> None:
    rng = random.Random(5)
    spans = [
        Span(f"r{rng.randint(0, 4)}", 1000 * i + rng.randint(0, 900), rng.choice((0, 3, 70)), block=i % 7, warp=i % 3,
             kind=("span", "instant", "value")[i % 5 if i % 5 < 3 else 0], value=rng.choice((None, -1.5e300, 7.0)),
             cycles=rng.choice((0, 5, 1 << 33)), launch=i % 2, open=i % 11 == 0)
        for i in range(400)
    ]  # fmt: skip
    trace = make_trace(spans)
    page = show(trace)
    names = {
        "start": "start_ns",
        "dur": "dur_ns",
        "cycle": "start_cycle",
        "cycles": "dur_cycles",
        "depth": "depth",
        "parent": "parent",
    }
    for ours, theirs in names.items():
        assert page.run(f"Array.from(warplens.timelines[0].trace.{ours})") == trace.numpy(theirs).tolist(), theirs
    regions = page.run("Array.from(warplens.timelines[0].trace.region, (code) => warplens.report.regions[code].name)")
    assert regions == trace.column("region").to_pylist()
    for name in ("sm", "block", "warp", "launch"):
        got = page.run(
            f"(({{trace}}) => Array.from(trace.track, (t) => trace.tracks.{name}[t]))(warplens.timelines[0])"
        )
        assert got == trace.numpy(name).tolist()
    values = page.run("Object.fromEntries(warplens.timelines[0].trace.value)")
    assert {int(k): v for k, v in values.items()} == {
        i: v for i, v in enumerate(trace.column("value").to_pylist()) if v is not None
    }
    assert page.run("[...warplens.timelines[0].trace.open]") == np.flatnonzero(trace.numpy("open")).tolist()


def test_counts_and_statistics_are_the_traces(show: Show, trace: Trace) -> None:
    page = show(trace)
    facts = page.run("document.querySelector('.facts').textContent")
    assert f"{len(trace):,}" in facts
    assert "pipelined_gemm" in facts
    assert "nothing" in facts
    assert (
        page.run("document.querySelector('.status .count').textContent")
        == f"{len(trace):,} of {len(trace):,} spans shown"
    )
    rows = page.run(
        "[...document.querySelectorAll('tr[data-region]')].map((r) => [...r.cells].map((c) => c.dataset.sort))"
    )
    stats = {row.region: row for row in trace.stats()}
    assert [row[0] for row in rows] == [row.region for row in trace.stats()]
    for row in rows:
        name, count, share, _, _, mean, _, p50, p95, p99, low, high, total, *_ = row
        expected = stats[name]
        got = [float(value) for value in (count, share, mean, p50, p95, p99, low, high, total)]
        assert got == [
            getattr(expected, n) for n in ("count", "share", "mean", "p50", "p95", "p99", "min", "max", "total")
        ]
    choose(page, "document.querySelector('[data-unit]')", "time")
    assert page.run("document.querySelector('td[data-cycles]').textContent").endswith(("ns", "µs"))


def test_a_click_shows_the_spans_own_numbers(show: Show, trace: Trace) -> None:
    page = show(trace)
    spans = trace.spans.to_pylist()
    for row in random.Random(0).sample([i for i, s in enumerate(spans) if s["kind"] == "span"], 12):
        page.click(*place(page, row))
        span = spans[row]
        assert page.run("warplens.timelines[0].selected") == row, span
        shown = details(page)
        assert shown["duration"] == f"{whole(span['dur_cycles'])} cycles"
        assert shown[""] == f"{whole(span['dur_ns'])} ns"
        assert shown["start"] == f"{whole(span['start_ns'])} ns"
        assert shown["start cycle"] == whole(span["start_cycle"])
        assert (shown["SM"], shown["block"], shown["warp"]) == (str(span["sm"]), str(span["block"]), str(span["warp"]))
        assert shown["source"] == trace.meta.locations[span["region"]]
        assert page.run("document.querySelector('.details h3').textContent") == span["region"]
    value = next(i for i, s in enumerate(spans) if s["kind"] == "value" and s["value"] > 20)
    page.run(f"warplens.panels[0].choose({value})")
    page.frame()
    assert details(page)["value"] == f"{spans[value]['value']:g}"


@pytest.mark.devtools
def test_zoom_and_pan_by_wheel_drag_keys_and_touch(show: Show, trace: Trace) -> None:
    page = show(trace)
    box = canvas(page)
    x, y = round(box["left"] + box["width"] * 0.6), box["top"] + 150
    before = window(page)
    under = page.run(f"warplens.timelines[0].timeAt({x - box['left']})")
    page.wheel(x, y, -300, modifiers=2)
    after = window(page)
    assert after[1] - after[0] < 0.7 * (before[1] - before[0])
    assert page.run(f"warplens.timelines[0].timeAt({x - box['left']})") == pytest.approx(under, abs=1), (
        "zooms about the pointer"
    )
    page.drag(x, y, x - 200, y)
    assert window(page)[0] > after[0]
    assert window(page)[1] - window(page)[0] == pytest.approx(after[1] - after[0])
    page.click(box["left"] + box["width"] * 0.98, y)
    page.key("0")
    assert window(page) == pytest.approx(before)
    page.key("w")
    page.key("d")
    panned = window(page)
    assert panned[1] - panned[0] == pytest.approx(0.75 * (before[1] - before[0]))
    page.run("warplens.timelines[0].fit()")
    page.touch("touchStart", [(x - 50, y), (x + 50, y)])
    for step in range(1, 6):
        page.touch("touchMove", [(x - 50 - 20 * step, y), (x + 50 + 20 * step, y)])
    page.touch("touchEnd", [])
    page.frame()
    pinched = window(page)
    assert pinched[1] - pinched[0] == pytest.approx((before[1] - before[0]) / 3, rel=0.1)
    page.run("warplens.panels[0].openAll(true)")
    scrolled = page.run("warplens.timelines[0].scroll")
    page.wheel(x, y, 120)
    assert page.run("warplens.timelines[0].scroll") > scrolled
    page.run("warplens.timelines[0].fit()")
    page.drag(box["left"] + 400, box["top"] + 10, box["left"] + 600, box["top"] + 10)
    chosen = window(page)
    assert chosen[1] - chosen[0] == pytest.approx((before[1] - before[0]) * 200 / (box["width"] - 168), rel=0.05)


def test_filters_leave_what_they_say(show: Show, trace: Trace) -> None:
    page = show(trace)

    def counted() -> int:
        return int(page.run("document.querySelector('.status .count').textContent").split()[0].replace(",", ""))

    def chip(name: str) -> str:
        return f"[...document.querySelectorAll('.chip')].find((c) => c.textContent === {json.dumps(name)})"

    region, sm = trace.column("region").to_pylist(), trace.numpy("sm")
    page.run(f"{chip('mma')}.click()")
    assert counted() == len(trace) - region.count("mma")
    page.run(f"{chip('mma')}.click(), {chip('load')}.dispatchEvent(new Event('dblclick'))")
    assert counted() == region.count("load")
    page.run(f"{chip('load')}.dispatchEvent(new Event('dblclick'))")
    assert counted() == len(trace)
    choose(page, "warplens.panels[0].smBox", "2-3, 7")
    assert counted() == int(np.isin(sm, [2, 3, 7]).sum())
    assert page.run(
        "warplens.timelines[0].layout.rows.filter((r) => r.node.kind === 'sm').map((r) => r.node.label)"
    ) == ["SM 2", "SM 3", "SM 7"]
    choose(page, "warplens.panels[0].smBox", "")
    choose(page, "document.querySelector('select[aria-label=Role]')", "0")
    assert counted() == int((trace.numpy("warp") == 0).sum())


def test_hidden_inner_regions_give_way_to_what_is_around_them(show: Show) -> None:
    page = show(make_trace([Span("outer", 0, 100), Span("inner", 20, 30)]))
    runs = "(({innermost: r}) => [...Array(r.count).keys()].map((i) => [r.begin[i], r.end[i]]))(warplens.timelines[0])"
    assert page.run(runs) == [[0, 20], [20, 50], [50, 100]]
    page.run("warplens.timelines[0].setFilter({regions: new Set([0])})")
    assert page.run(runs) == [[0, 100]]


def test_search_finds_exactly_the_spans_that_match(show: Show, trace: Trace) -> None:
    page = show(trace)
    spans = trace.spans.to_pylist()

    def search(text: str) -> list[int]:
        page.run(f"(() => {{ const p = warplens.panels[0]; p.searchBox.value = {json.dumps(text)}; p.search(); }})()")
        return page.run("Array.from(warplens.panels[0].matches?.rows ?? [])")

    def expected(test: Callable[[dict[str, Any]], bool]) -> set[int]:
        return {i for i, span in enumerate(spans) if test(span)}

    assert set(search("WAIT full")) == expected(lambda s: s["region"] == "wait full")
    assert set(search("mma sm:3-4 dur>280")) == expected(
        lambda s: s["region"] == "mma" and 3 <= s["sm"] <= 4 and s["dur_cycles"] > 280
    )
    assert set(search("value=17")) == expected(lambda s: s["value"] == 17)
    assert search("no such region") == []
    assert page.run("document.querySelector('.found').textContent") == "nothing found"
    rows = search("epilogue warp:1")
    starts = [spans[row]["start_ns"] for row in rows]
    assert starts == sorted(starts)
    page.run("warplens.panels[0].searchBox.focus()")
    page.key("Enter")
    page.key("Enter")
    assert page.run("warplens.timelines[0].selected") == rows[1]
    assert page.run("document.querySelector('.found').textContent") == f"2 of {len(rows)}"
    search("color:red")
    assert "sm:3" in page.run("document.querySelector('.found').textContent")


def test_measuring_from_edge_to_edge_gives_exact_cycles(show: Show, trace: Trace) -> None:
    page = show(trace)
    spans = trace.spans.to_pylist()
    rows = [i for i, s in enumerate(spans) if s["region"] == "epilogue" and s["sm"] == 0 and s["warp"] == 1]
    first = rows[0]
    _, y = place(page, first)
    box = page.run(f"(({{left, right}}) => [left, right])(warplens.timelines[0].boxOf({first}))")
    left = canvas(page)["left"]
    page.drag(left + box[0] + 2, y, left + box[1] - 2, y, modifiers=8)
    shown = page.run("document.querySelector('.status').textContent")
    assert f"{whole(spans[first]['dur_cycles'])} cycles" in shown
    assert "≈" not in shown
    page.run("warplens.timelines[0].canvas.focus()")
    page.key("Escape")
    assert page.run("warplens.timelines[0].measure") is None


def test_the_keyboard_reaches_spans(show: Show, trace: Trace) -> None:
    page = show(trace)
    page.run("warplens.timelines[0].canvas.focus()")
    page.key("Enter")
    assert page.run("warplens.timelines[0].selected") == 0
    page.key("ArrowDown")
    child = page.run("warplens.timelines[0].selected")
    assert trace.numpy("parent")[child] == 0
    page.key("ArrowRight")
    following = page.run("warplens.timelines[0].selected")
    assert following > child
    assert trace.numpy("depth")[following] == trace.numpy("depth")[child]
    page.key("ArrowUp")
    assert page.run("warplens.timelines[0].selected") == 0
    reachable = page.run(
        "[...document.querySelectorAll('button:not([role=tab]), select, input, canvas.timeline, a.show')]"
        ".every((e) => e.tabIndex >= 0)"
    )
    assert reachable


def test_pixels_show_what_the_analysis_says(show: Show, trace: Trace) -> None:
    """The browser's own level of detail against analyse.timeline, for warps at full width."""
    page = show(trace)
    found = strips(trace, "warp", bins=300)
    script = f"""(() => {{
      const timeline = warplens.timelines[0], out = [];
      const view = {{begin: {found.begin}, perNs: 300 / {found.end - found.begin}, width: 300}};
      const codes = Uint32Array.from(timeline.regions, (_, code) => 0xff000000 + code);
      for (let t = 0; t < timeline.trace.tracks.count; t++) {{
        const line = new Uint32Array(300).fill(0);
        timeline.painter.paint(line, view, timeline.innermost, t, timeline.trace.region, codes, codes, null);
        out.push(Array.from(line, (pixel) => pixel ? 1 : 0));
        out.push(Array.from(line, (pixel) => pixel >>> 24 === 255 ? pixel & 255 : -1));
      }}
      return out;
    }})()"""
    drawn = page.run(script)
    touched, codes = np.array(drawn[0::2]), np.array(drawn[1::2])
    assert ((found.dominant >= 0) == (touched == 1)).all()
    full = found.time.sum(axis=1) > 0.999 * found.bin_ns
    shares = np.sort(found.time, axis=1)
    clear = full & (shares[:, -1] - shares[:, -2] > 1e-6 * found.bin_ns)
    assert clear.sum() > 3000
    assert (codes[clear] == found.dominant[clear]).all()


def test_two_traces_are_compared_in_one_report(show: Show, trace: Trace) -> None:
    other = gemm(tiles=40, steps=6, sms=12, slow=1.5, seed=3)
    page = show(trace, other)
    assert page.run("warplens.timelines.length") == 2
    cells = "[r.cells[0].textContent.trim(), r.cells[6].dataset.sort, r.cells[7].dataset.sort]"
    rows = page.run(f"[...document.querySelectorAll('#comparison tbody tr')].map((r) => {cells})")
    a, b = trace.stats(), other.stats()
    assert {name: (float(x), float(y)) for name, x, y in rows} == {
        row.region: (row.p50, b[row.region].p50) for row in a
    }
    page.run("warplens.timelines[0].setWindow(100, 900)")
    assert page.run("[warplens.timelines[1].begin, warplens.timelines[1].end]") == [100, 900]
    page.run("document.getElementById('linked').click()")
    page.run("warplens.timelines[0].setWindow(300, 500)")
    assert page.run("warplens.timelines[1].begin") == 100


HOSTILE = [
    "<img src=x onerror=\"document.title='owned'\">",
    "</script><script>document.title='owned'</script>",
    "</title><svg onload=\"document.title='owned'\">",
    "`<b>` {{ 7*7 }} ${7*7} \u2028 \" ' & \\",
]


def test_hostile_names_are_only_text(show: Show) -> None:
    spans = [Span(name, 100 * i, 90, kernel=HOSTILE[1]) for i, name in enumerate(HOSTILE)]
    made = make_trace(spans)
    meta = made.meta.__class__(
        **{**vars(made.meta), "locations": {HOSTILE[0]: HOSTILE[0] + ":3"}, "devices": {"0": {"name": HOSTILE[2]}}}
    )
    page = show(Trace(made.spans, meta), Trace(made.spans, meta))
    assert "owned" not in page.run("document.title.replaceAll(\"title='owned'\", '')")
    assert page.run("document.querySelectorAll('img, main script, b').length") == 0
    assert page.run("[...document.querySelectorAll('.panel')][0].querySelectorAll('.chip').length") == len(HOSTILE)
    assert set(
        page.run("[...document.querySelectorAll('.panel')[0].querySelectorAll('.chip')].map((c) => c.textContent)")
    ) == set(HOSTILE)
    page.run("warplens.panels[0].choose(0)")
    assert page.run("document.querySelector('.details h3').textContent") == HOSTILE[0]
    blocked = page.run("""new Promise((done) => {
      addEventListener("securitypolicyviolation", (event) => done(event.blockedURI));
      const script = document.createElement("script");
      script.textContent = "document.title = 1";
      document.body.append(script);
      setTimeout(() => done("ran"), 500);
    })""")
    assert blocked == "inline", "the policy must stop scripts that are not the report's own"
    page.forget_errors()


@pytest.mark.devtools
def test_light_dark_and_print_are_drawn_anew(show: Show, trace: Trace) -> None:
    page = show(trace)
    corner = "(warplens.timelines[0].draw(), Array.from(warplens.timelines[0].image.data.slice(-4)))"
    light = page.run(corner)
    page.run("document.getElementById('theme').click()")
    dark = page.run(corner)
    assert sum(light[:3]) > 600 > 200 > sum(dark[:3])
    page.run("dispatchEvent(new Event('beforeprint'))")
    assert page.run(corner) == light
    page.run("dispatchEvent(new Event('afterprint'))")
    assert page.run(corner) == dark
    pdf = page.send("Page.printToPDF", preferCSSPageSize=False)["data"]
    assert len(pdf) > 20_000


@pytest.mark.parametrize("width", [920, 1000, 1160, 1400])
def test_the_head_of_the_page_fits_any_window(show: Show, trace: Trace, width: int) -> None:
    page = show(trace, width=width, height=700, scroll=False)
    right = page.run("document.getElementById('theme').getBoundingClientRect().right")
    assert 0 < right <= page.run("document.documentElement.clientWidth")
    rows = page.run("new Set([...document.querySelectorAll('.facts > div')].map(one => one.offsetTop)).size")
    assert rows == 1 or width < 1000


def test_a_phone_sized_window_has_no_sideways_scroll(show: Show, trace: Trace) -> None:
    page = show(trace, width=390, height=800)
    assert page.run("document.documentElement.scrollWidth") <= 390
    assert page.run("warplens.timelines[0].width") > 300


def test_a_cycle_count_is_not_broken_in_the_details(show: Show) -> None:
    page = show(decode(samples.simulated().capture), width=1100)  # its clock has 15 digits
    page.run("warplens.panels[0].choose(4)")
    tall = page.run("[...document.querySelectorAll('.details dd')].map((d) => d.getBoundingClientRect().height)")
    assert min(tall) == max(tall)


@pytest.mark.parametrize("width", [390, 1500])
def test_times_below_a_heat_map_have_room(show: Show, width: int) -> None:
    page = show(load(LATE), width=width)
    script = """(() => {
      const seen = [], draw = CanvasRenderingContext2D.prototype.fillText;
      CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
        const wide = this.measureText(text).width, left = { left: 0, center: wide / 2, right: wide }[this.textAlign];
        if (this.canvas.closest(".heat-map") && / [nµm]?s$/.test(text)) seen.push([x - left, x - left + wide]);
        draw.call(this, text, x, y);
      };
      document.getElementById("theme").click();
      CanvasRenderingContext2D.prototype.fillText = draw;
      return seen;
    })()"""
    labels = page.run(script)
    assert len(labels) >= 2
    assert all(before[1] < after[0] or after[0] < before[0] for before, after in pairwise(labels))


@pytest.mark.slow
@pytest.mark.devtools
def test_a_million_spans_stay_small_and_smooth(show: Show, tmp_path: Path) -> None:
    """A file under 12 MB, and work for 30 frames a second or more with every SM on screen, zooming and panning."""
    from tests.support.synthetic_capture import make_capture
    from warplens.decode import decode
    from warplens.view.html import save

    trace = decode(make_capture(1_000_000))
    size = save([trace], tmp_path / "million.html").stat().st_size
    page = show(trace)
    script = """(async () => {
      const panel = warplens.panels[0], timeline = panel.timeline, frames = [];
      panel.openAll(false);
      panel.setDensity("compact");
      timeline.fit();
      let last = performance.now();
      for (let i = 0; i < 120; i++) {
        timeline.zoom(i < 60 ? 0.97 : 1 / 0.97);
        timeline.pan(i % 2 ? 7 : -5);
        await new Promise(requestAnimationFrame);
        frames.push(performance.now() - last);
        last = performance.now();
      }
      const sorted = frames.slice(10).sort((a, b) => a - b);
      return {median: sorted[sorted.length >> 1], p95: sorted[Math.floor(sorted.length * 0.95)]};
    })()"""
    before = page.busy_seconds()
    times = page.run(script)
    work = (page.busy_seconds() - before) * 1000 / 120
    print(
        f"{len(trace):,} spans: {size / 1e6:.2f} MB, frame {times['median']:.1f} ms median, {times['p95']:.1f} ms p95, "
        f"{work:.1f} ms of work"
    )
    assert size < 12_000_000
    assert work < 1000 / 30
    page.wait_for("!warplens.timelines[0].moving && warplens.timelines[0].painted === 1")


def test_launches_far_apart_begin_with_the_longest(show: Show) -> None:
    spans = [
        Span("a", 10**6 * n + i, 5, launch=n, warp=i % 2) for n in range(3) for i in range(0, 60 + 30 * (n == 1), 10)
    ]
    page = show(make_trace(spans))
    assert page.run("document.querySelector('select[aria-label=Launch]').selectedOptions[0].textContent").startswith(
        "kernel #1"
    )
    begin, end = window(page)
    assert 10**6 - 10 < begin < end < 10**6 + 110
    choose(page, "document.querySelector('select[aria-label=Launch]')", "")
    assert window(page)[1] - window(page)[0] > 2 * 10**6


def test_the_critical_path_is_outlined_where_the_analysis_says(show: Show, trace: Trace) -> None:
    page = show(trace)
    page.run("[...document.querySelectorAll('.toolbar button')].find((b) => b.textContent === 'Critical path').click()")
    script = """(({critical, trace: {tracks}}) => critical.map(({track, begin, end}) =>
      [tracks.launch[track], tracks.block[track], tracks.warp[track], begin, end]))(warplens.timelines[0])"""
    drawn = page.run(script)
    found = critical_path(trace)["pipelined_gemm"]
    assert drawn == [[found.launch, step.block, step.warp, step.start_ns, step.end_ns] for step in found.steps]
    assert page.run("warplens.timelines[0].boxOfTrack(warplens.timelines[0].critical[0].track).top") > 0


def test_heat_maps_hold_the_analysis_numbers_and_lead_to_the_timeline(show: Show, trace: Trace) -> None:
    page = show(trace)
    found = over_time(trace, "sm", 240)
    info = page.run("warplens.report.traces[0].over_time[0]")
    assert info["labels"] == list(found.rows.labels)
    assert (info["begin"], info["end"]) == (found.begin, found.end)
    cells = page.run("Array.from(warplens.panels[0].columns.raw('over_time.sm'))")
    assert np.allclose(np.array(cells) / 255 * info["peak"], found.warps.reshape(-1), atol=info["peak"] / 500)
    page.run("document.querySelector('canvas.heat').scrollIntoView({behavior: 'instant', block: 'center'})")
    page.frame()
    box = page.run("document.querySelector('canvas.heat').getBoundingClientRect().toJSON()")
    x, y = box["left"] + 64 + (box["width"] - 64) * 0.5, box["top"] + (box["height"] - 22) * 5.5 / 12
    page.hover(x, y)
    assert page.run("document.querySelector('.tip').textContent").startswith("SM 5, ")
    page.click(x, y)
    begin, end = window(page)
    assert begin < (found.begin + found.end) / 2 < end
    assert end - begin < (found.end - found.begin) / 20
    assert page.run("warplens.timelines[0].tree.roots[5].open") is True


def test_a_double_click_zooms_to_the_span(show: Show, trace: Trace) -> None:
    page = show(trace)
    row = trace.column("region").to_pylist().index("epilogue")
    page.click(*place(page, row), count=2)
    begin, end = window(page)
    start, length = int(trace.numpy("start_ns")[row]), int(trace.numpy("dur_ns")[row])
    assert (begin, end) == pytest.approx((start - length / 4, start + length * 1.25))


def test_a_selected_wait_shows_what_released_it(show: Show) -> None:
    """The arrow's ends are the arrival and the end of the wait, and the details lead from one to the other."""
    trace = run_pipeline(blocks=1, tiles=8, work=200).trace
    page = show(trace)
    edges = [edge for edge in trace.edges.to_pylist() if edge["waited_ns"] > 0]
    edge = edges[len(edges) // 2]
    wait, record = edge["wait"], edge["arrival_record"]
    pairs = page.run("[...warplens.timelines[0].trace.releasedBy.entries()]")
    assert sorted(map(tuple, pairs)) == sorted((one["wait"], one["arrival_record"]) for one in edges)
    place(page, wait)
    page.run(f"warplens.timelines[0].select({wait})")
    before = page.run("warplens.timelines[0].canvas.toDataURL()")
    texts = page.run(f"{BUTTONS}.map((button) => button.textContent)")
    names, warp = trace.spans["region"].to_pylist(), trace.numpy("warp")
    source = int(trace.numpy("parent")[record]) if trace.numpy("parent")[record] >= 0 else record
    assert f"← released by {names[source]}, warp {warp[source]}" in texts
    page.run(
        "[...document.querySelectorAll('.details .links button')].find((b) => b.textContent.startsWith('←')).click()"
    )
    assert page.run("warplens.timelines[0].selected") == source
    onward = page.run(f"{BUTTONS}.map((button) => button.textContent)")
    assert any(text.startswith("→ released") for text in onward)
    page.frame()
    assert page.run("warplens.timelines[0].canvas.toDataURL()") != before
