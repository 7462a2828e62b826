// The selection in words and numbers: which part it is, a table of its regions, and one region's distribution.

import { element } from "./details.js";
import { integer, preciseTime } from "./format.js";
import { binned, selectionOf, selectionStatistics } from "./selection.js";

const [WIDE, HIGH, BINS] = [330, 84, 44];
const MOST_ROWS = 14;
const PICKED_NAMES = 3;

export class SelectionView {
  constructor(timeline, info, regions, actions) {
    Object.assign(this, { timeline, info, regions, actions, region: -1, all: false });
    this.root = element("section", { class: "selection", "aria-label": "Statistics of the selection" });
  }

  chooseRegion(code) {
    this.region = code;
    this.soon();
  }

  // Statistics over millions of spans take a moment: once per change, not once per pixel of a drag.
  soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.show(), 60);
  }

  show() {
    clearTimeout(this.waiting);
    const { timeline, regions } = this;
    this.statistics = selectionStatistics(timeline.trace, selectionOf(timeline));
    const { count, warps, regions: rows } = this.statistics;
    const chosen = rows.find((row) => row.region === this.region) ?? rows[0];
    const whole = !timeline.measure && !timeline.picked.size;
    const head = element("h3", { text: this.title() });
    const note = element("p", { class: "hint", role: "status", text: `${integer(count)} closed spans of ${integer(warps)} warp${warps === 1 ? "" : "s"}; durations in cycles` });
    const clear = element("button", { type: "button", text: "Clear the selection", onclick: () => this.actions.clear() });
    const visible = element("button", { type: "button", text: "Select the visible time", onclick: () => this.actions.selectVisible() });
    const shown = this.all ? rows : rows.slice(0, MOST_ROWS);
    const more = element("button", { type: "button", text: `${rows.length - shown.length} more regions`, onclick: () => ((this.all = true), this.show()) });
    this.root.replaceChildren(head, note, element("p", { class: "links-row" }, visible, ...(whole ? [] : [clear])));
    if (!rows.length) return;
    this.root.append(this.table(shown, chosen), ...(shown.length < rows.length ? [more] : []));
    this.root.append(element("h3", { text: `${regions[chosen.region].name}: distribution of durations` }), this.histogram(chosen), ...this.facts(chosen.region));
  }

  title() {
    const { measure, picked } = this.timeline;
    const parts = [];
    if (measure) parts.push(`${preciseTime(Math.min(measure.from, measure.to))} to ${preciseTime(Math.max(measure.from, measure.to))}`);
    const names = [...picked].map((node) => (node.kind === "warp" ? `${node.parent.label} ${node.label}` : node.label));
    if (names.length) parts.push(names.slice(0, PICKED_NAMES).join(", ") + (names.length > PICKED_NAMES ? ` and ${names.length - PICKED_NAMES} more` : ""));
    return parts.join(" · ") || "Everything that the filters show";
  }

  table(rows, chosen) {
    const names = ["region", "count", "share", "mean", "p50", "p95", "p99"];
    const head = element("tr", {}, ...names.map((text) => element("th", { scope: "col", text })));
    const body = rows.map((row) => {
      const region = this.regions[row.region];
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = region.colour;
      const pick = element("button", { type: "button", text: region.name, title: `${region.name}: show its distribution, and highlight it in the timeline`, "aria-pressed": String(row === chosen), onclick: () => this.actions.pickRegion(row.region) });
      const numbers = [integer(row.count), `${(100 * row.share).toFixed(1)} %`, ...[row.mean, row.p50, row.p95, row.p99].map(integer)];
      return element("tr", { class: row === chosen ? "chosen" : "" }, element("td", { class: "name" }, swatch, pick), ...numbers.map((text) => element("td", { text })));
    });
    return element("table", {}, element("thead", {}, head), element("tbody", {}, ...body));
  }

  // The square root keeps a tail of single spans visible next to a peak of thousands.
  histogram({ region, sorted, p50, p95, p99 }) {
    const { low, high, counts } = binned(sorted, BINS);
    const most = Math.max(...counts);
    const each = WIDE / counts.length;
    const steps = counts.map((count, at) => {
      const y = (HIGH - (HIGH - 14) * Math.sqrt(count / most)).toFixed(1);
      return `L${(at * each).toFixed(1)},${y}L${((at + 1) * each).toFixed(1)},${y}`;
    });
    const name = this.regions[region].name;
    const box = drawn("svg", { class: "spread", viewBox: `0 0 ${WIDE} ${HIGH + 16}`, role: "img", "aria-label": `${name}: ${integer(low)} to ${integer(high)} cycles, p50 ${integer(p50)}, p95 ${integer(p95)}, p99 ${integer(p99)}` });
    box.append(drawn("path", { d: `M0,${HIGH}${steps.join("")}L${WIDE},${HIGH}Z`, fill: this.regions[region].colour }));
    const x = (value) => (high > low ? ((value - low) / (high - low)) * WIDE : WIDE / 2);
    for (const value of [p50, p95, p99]) box.append(drawn("line", { x1: x(value), x2: x(value), y1: 0, y2: HIGH }));
    const label = (value, at, anchor) => {
      const text = drawn("text", { x: at, y: HIGH + 13, "text-anchor": anchor });
      text.textContent = value;
      box.append(text);
    };
    label(`${integer(low)} cycles`, 0, "start");
    label("lines: p50, p95, p99", WIDE / 2, "middle");
    label(integer(high), WIDE, "end");
    return box;
  }

  // What the report knows about a region besides its durations.
  facts(code) {
    const known = this.info.region_facts[code] ?? [];
    if (!known.length) return [];
    const list = element("dl", { class: "region-facts" });
    for (const [name, text] of known) list.append(element("dt", { text: name }), element("dd", { text }));
    return [list];
  }
}

function drawn(name, attributes) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}
