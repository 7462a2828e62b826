"""The report's charts and tables can be read: labels keep apart, and nothing is cut off or written over."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest

from tests.support.builders import Span, make_trace
from warplens.analyse.roofline import roofline
from warplens.trace.model import Trace
from warplens.view.html import ReportOptions

if TYPE_CHECKING:
    from tests.support.chromium import Page

Show = Callable[..., "Page"]
Box = dict[str, float]

PERCENTILES = """(async () => {
  const seen = [], draw = CanvasRenderingContext2D.prototype.fillText;
  CanvasRenderingContext2D.prototype.fillText = function (text, x, y) {
    if (/^p\\d+ /.test(text)) {
      const { width } = this.measureText(text), high = parseFloat(this.font);
      seen.push({ text, left: x, right: x + width, top: y, bottom: y + high, canvas: this.canvas.width });
    }
    draw.call(this, text, x, y);
  };
  document.getElementById("theme").click();
  await new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn, 50)));
  CanvasRenderingContext2D.prototype.fillText = draw;
  return seen;
})()"""
BOXES = """[...document.querySelectorAll('{}')].map((one) =>
  ({{text: one.textContent, ...one.getBoundingClientRect().toJSON()}}))"""


def overlap(first: Box, second: Box) -> bool:
    """Whether two boxes have more than a line in common."""
    across = min(first["right"], second["right"]) - max(first["left"], second["left"])
    down = min(first["bottom"], second["bottom"]) - max(first["top"], second["top"])
    return across > 0.5 and down > 0.5


def overlapping(boxes: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(one["text"], other["text"]) for one, other in combinations(boxes, 2) if overlap(one, other)]


def trace_of(durations: list[int]) -> Trace:
    return make_trace([Span("load", 10_000 * i, dur, block=i % 8) for i, dur in enumerate(durations)])


@pytest.mark.parametrize(
    ("width", "durations"),
    [
        pytest.param(390, [100] * 90 + [101] * 5 + [102] * 5, id="p95 next to p99"),
        pytest.param(1400, [10] * 50 + [9000] * 50, id="at the right edge"),
    ],
)
def test_percentile_labels_keep_apart_and_inside(show: Show, width: int, durations: list[int]) -> None:
    labels = show(trace_of(durations), width=width).run(PERCENTILES)
    assert [label["text"].split()[0] for label in labels] == ["p50", "p95", "p99"]
    assert overlapping(labels) == []
    assert all(label["left"] >= 0 and label["right"] <= label["canvas"] for label in labels)


@pytest.mark.parametrize(("width", "flops", "size"), [(390, 5e10, 2e7), (1400, 1e6, 1e9), (1400, None, 4e8)])
def test_the_roofline_table_and_its_chart_can_be_read(show: Show, width: int, flops: float | None, size: float) -> None:
    trace = trace_of([5000] * 40)
    placed = roofline(trace, flops=flops, bytes=size, device="H200")
    page = show(trace, width=width, options=ReportOptions(roofs=[placed]))
    cells = page.run(BOXES.format("#roof table th, #roof table td"))
    assert {"bound", "share of the roof", "memory"} <= {cell["text"] for cell in cells}
    assert overlapping(cells) == []
    sizes = page.run(
        """[...document.querySelectorAll('#roof table th, #roof table td')].map((cell) => [
          cell.scrollWidth - cell.clientWidth, parseFloat(getComputedStyle(cell).fontSize)])"""
    )
    assert all(cut <= 0 and font >= 11 for cut, font in sizes)
    assert all(cell["right"] <= width for cell in cells)
    ticks = page.run(BOXES.format("svg.roof text"))
    assert bool(ticks) is (flops is not None)
    assert overlapping(ticks) == []
