"""The report by keyboard and screen reader: every control is reachable and named, and text is legible."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from tests.support.gemm_scene import gemm
from warplens.trace.model import Trace

if TYPE_CHECKING:
    from tests.support.chromium import Page

Show = Callable[..., "Page"]

FAINT = """(() => {
  const channel = (part) => ((part /= 255) <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
  const bright = ([r, g, b]) => 0.2126 * channel(r) + 0.7152 * channel(g) + 0.0722 * channel(b);
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const behind = (e) => {
    for (let up = e; up; up = up.parentElement) {
      const colour = parse(getComputedStyle(up).backgroundColor);
      if (colour.length < 4 || colour[3] === 1) return colour;
    }
    return [255, 255, 255];
  };
  const faint = [];
  for (const e of document.querySelectorAll("body *:not(script):not(svg *):not(canvas):not(noscript)")) {
    const own = [...e.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !e.checkVisibility({visibilityProperty: true}) || e.closest("[hidden], .skip")) continue;
    const style = getComputedStyle(e);
    const [a, b] = [bright(parse(style.color)), bright(behind(e))].sort((x, y) => x - y);
    const ratio = (b + 0.05) / (a + 0.05);
    if (ratio < 4.5) faint.push([e.tagName, e.className, e.textContent.trim().slice(0, 40), ratio]);
  }
  return faint;
})()"""

UNNAMED = """[...document.querySelectorAll("a, button, select, input, summary, canvas, [tabindex], [role=tab]")]
  .filter((e) => e.getAttribute("aria-hidden") !== "true" && !e.closest("[hidden]"))
  .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length || e.title
    || document.getElementById(e.getAttribute("aria-labelledby"))))
  .map((e) => e.outerHTML.slice(0, 120))"""


@pytest.fixture(scope="module")
def trace() -> Trace:
    made = gemm(tiles=40, steps=6, sms=12)
    return Trace(made.spans, replace(made.meta, losses=replace(made.meta.losses, records_lost=5)))


def test_text_is_legible_in_both_themes(show: Show, trace: Trace) -> None:
    page = show(trace)
    page.run("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    for _ in range(2):
        for tab in (0, 1):
            page.run(f"warplens.panels[0].side.show({tab})")
            page.frame()
            assert page.run(FAINT) == [], page.run("document.documentElement.dataset.theme")
        page.run("document.getElementById('theme').click()")


def test_every_control_has_a_name(show: Show, trace: Trace) -> None:
    page = show(trace, trace)
    for tab in (0, 1):
        page.run(f"warplens.panels.forEach((panel) => panel.side.show({tab}))")
        assert page.run(UNNAMED) == []


def test_tabs_follow_the_arrow_keys(show: Show, trace: Trace) -> None:
    page = show(trace)
    page.run("document.querySelector('[role=tab][aria-selected=true]').focus()")
    page.key("ArrowRight")
    assert page.run("document.activeElement.textContent") == "Selection"
    assert page.run("document.getElementById(document.activeElement.getAttribute('aria-controls')).hidden") is False


def test_heat_maps_are_read_and_followed_by_keys(show: Show, trace: Trace) -> None:
    page = show(trace)
    page.run("document.querySelector('canvas.heat').focus()")
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.key(key)
    assert page.run("document.querySelector('.heat-map .tip').textContent").startswith("SM 2, ")
    before = page.run("warplens.timelines[0].perPixel")
    page.key("Enter")
    assert page.run("warplens.timelines[0].perPixel") < before / 10
    assert page.run("warplens.timelines[0].tree.roots[2].open")


def test_rows_are_selected_by_keys(show: Show, trace: Trace) -> None:
    page = show(trace)
    page.run("warplens.timelines[0].canvas.focus()")
    page.key("Enter")
    kinds = []
    for _ in range(3):
        page.key("r")
        kinds += page.run("[...warplens.timelines[0].picked].map((node) => node.kind)")
    assert kinds == ["warp", "block", "sm"]
