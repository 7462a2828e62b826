// The table of regions: sorting, cycles or time, and a large histogram of the selected region.

import { element } from "./details.js";
import { integer } from "./format.js";

export function enliven(section, report, getTheme) {
  for (const table of section.querySelectorAll("table.sortable")) sortable(table);
  const unit = section.querySelector("select[data-unit]");
  unit?.addEventListener("change", () => {
    for (const cell of section.querySelectorAll("td[data-cycles]")) cell.textContent = cell.getAttribute(`data-${unit.value}`);
  });
  const chart = section.querySelector(".histogram");
  if (!chart) return null;
  const shown = new HistogramChart(chart, report, getTheme);
  for (const row of section.querySelectorAll("tr[data-region]")) {
    const pick = () => {
      for (const other of section.querySelectorAll("tr[data-region]")) other.classList.toggle("chosen", other === row);
      shown.show(Number(row.dataset.region));
    };
    row.addEventListener("click", pick);
    row.querySelector("button")?.addEventListener("click", (event) => {
      event.stopPropagation();
      pick();
    });
  }
  section.querySelector("tr[data-region]")?.click();
  return shown;
}

function sortable(table) {
  const body = table.tBodies[0];
  table.querySelectorAll("thead th").forEach((head, column) => {
    const button = element("button", { type: "button", class: "sort", text: head.textContent });
    head.replaceChildren(button);
    button.addEventListener("click", () => {
      const descending = head.getAttribute("aria-sort") !== "descending";
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent;
      const rows = [...body.rows].sort((a, b) => compare(key(a), key(b)) * (descending ? -1 : 1));
      body.append(...rows);
    });
  });
}

function compare(a, b) {
  const [x, y] = [Number(a), Number(b)];
  return Number.isNaN(x) || Number.isNaN(y) ? a.localeCompare(b) : x - y;
}

const ROUND = [...Array(15).keys()].flatMap((power) => [1, 2, 5].map((digit) => digit * 10 ** power)); // integers only

// Drawn as steps, not bars, since the bins of a long tail grow with the duration.
class HistogramChart {
  constructor(root, report, getTheme) {
    Object.assign(this, { root, report, getTheme });
    new ResizeObserver(() => this.chart?.setSize({ width: this.width, height: 230 })).observe(root);
  }

  // The room inside the padding, so that the card does not scroll sideways.
  get width() {
    const { paddingLeft, paddingRight } = getComputedStyle(this.root);
    return Math.max(this.root.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight), 200);
  }

  show(code) {
    this.code = code;
    const made = this.report.histograms[code];
    const region = this.report.regions[code];
    this.chart?.destroy();
    this.root.replaceChildren();
    if (!made) {
      this.root.append(element("p", { class: "hint", text: "This region has no closed span." }));
      return;
    }
    const theme = this.getTheme();
    const { edges, scale } = made;
    const series = made.counts.map((counts, at) => ({
      label: this.report.traces.length > 1 ? this.report.traces[at].label : "spans",
      stroke: at ? theme.text : region.colour,
      fill: at ? undefined : `${region.colour}66`,
      width: 1.5,
      dash: at ? [5, 3] : undefined,
      points: { show: false },
      paths: window.uPlot.paths.stepped({ align: 1 }),
      value: (_, value) => (value == null ? "–" : integer(value)),
    }));
    const axis = { incrs: ROUND, stroke: theme.muted, grid: { stroke: theme.grid, width: 1 }, ticks: { stroke: theme.grid, width: 1 }, font: "11px system-ui, sans-serif" };
    this.root.append(element("h3", { text: `${region.name}: distribution of durations` }));
    this.chart = new window.uPlot(
      {
        width: this.width,
        height: 230,
        legend: { live: true },
        cursor: { points: { show: false }, y: false },
        scales: { x: { time: false, distr: scale === "log" ? 3 : 1, range: scale === "log" ? undefined : (_, low, high) => [low, high] }, y: { range: (_, low, high) => [0, high * 1.1 || 1] } },
        axes: [
          { ...axis, label: "cycles", labelFont: "11px system-ui, sans-serif", labelSize: 18, size: 32, values: (_, ticks) => ticks.map((tick) => (tick === null ? "" : integer(tick))) },
          { ...axis, size: 58, values: (_, ticks) => ticks.map((tick) => integer(tick)) },
        ],
        series: [{ label: "at least", value: (_, value) => (value == null ? "–" : `${integer(value)} cycles`) }, ...series],
        hooks: { draw: [(chart) => this.drawPercentiles(chart, made.percentiles, theme)] },
      },
      [edges, ...made.counts.map((counts) => [...(counts ?? edges.slice(1).map(() => 0)), 0])],
      this.root,
    );
    const said = made.percentiles.map(([name, value]) => `${name} ${integer(value)}`).join(", ");
    this.chart.ctx.canvas.setAttribute("role", "img");
    this.chart.ctx.canvas.setAttribute("aria-label", `${region.name}: distribution of durations in cycles, ${said}`);
  }

  drawPercentiles(chart, percentiles, theme) {
    const { ctx: context, bbox } = chart;
    const ratio = window.devicePixelRatio || 1;
    context.save();
    context.font = `${11 * ratio}px system-ui, sans-serif`;
    context.textBaseline = "top";
    context.textAlign = "left";
    let lane = 0;
    for (const [name, value] of percentiles) {
      const x = chart.valToPos(value, "x", true);
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      context.strokeStyle = theme.text;
      context.setLineDash([2 * ratio, 2 * ratio]);
      context.beginPath();
      context.moveTo(x, bbox.top);
      context.lineTo(x, bbox.top + bbox.height);
      context.stroke();
      const text = `${name} ${integer(value)}`;
      const wide = context.measureText(text).width;
      context.fillStyle = theme.text;
      context.fillText(text, x + wide + 6 > bbox.left + bbox.width ? x - wide - 4 * ratio : x + 4 * ratio, bbox.top + (2 + 14 * lane++) * ratio);
    }
    context.restore();
  }

  refresh() {
    if (this.code !== undefined) this.show(this.code);
  }
}

