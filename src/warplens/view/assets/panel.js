// A timeline with its controls: search, filters, legend, minimap, what is not shown, and the column beside it.

import { Columns, inflate } from "./codec.js";
import { element, showDetails } from "./details.js";
import { duration, integer, preciseTime } from "./format.js";
import { listen } from "./input.js";
import { Minimap } from "./minimap.js";
import { measureText } from "./overlay.js";
import { compileQuery, findMatches } from "./search.js";
import { SelectionView } from "./selectionview.js";
import { Side } from "./side.js";
import { Timeline } from "./timeline.js";
import { Tooltip } from "./tooltip.js";
import { unpackTrace } from "./trace.js";

const LEGEND_FIRST = 18;
const [FINDINGS_TAB, SELECTION_TAB] = [0, 1];
const LEAST_HEIGHT = 320; // of a timeline
const BELOW = 46; // the status line and a margin

export async function openPanel(root, info, regions, help) {
  const payload = document.getElementById(info.payload);
  const columns = new Columns(await inflate(payload.textContent.trim()), info.columns);
  payload.remove(); // free megabytes of text
  const trace = unpackTrace(columns);
  return new Panel(root, trace, columns, info, regions, help);
}

class Panel extends EventTarget {
  constructor(root, trace, columns, info, regions, help) {
    super();
    Object.assign(this, { root, trace, columns, info, regions, matches: null, matchAt: -1 });
    this.canvas = element("canvas", {
      class: "timeline",
      tabindex: "0",
      role: "application",
      "aria-label": `Timeline of ${info.label}: ${integer(info.shown)} spans. W and S zoom, A and D pan, Enter selects a span, arrow keys move to the next, question mark lists every key.`,
    });
    const map = element("canvas", { class: "minimap", "aria-hidden": "true" });
    this.details = element("div", { class: "details", "aria-live": "polite", role: "group", "aria-label": "Selected span" });
    this.coverage = element("p", { class: "coverage-line", role: "status" });
    this.status = element("div", { class: "status" });
    this.canvasBox = element("div", { class: "canvas-box" }, this.canvas);
    const drawn = element("div", { class: "drawn" }, map, this.canvasBox);
    this.timeline = new Timeline(this.canvas, trace, info, regions);
    this.selection = new SelectionView(this.timeline, info, regions, {
      clear: () => this.clear(),
      selectVisible: () => this.selectTime(this.timeline.begin, this.timeline.end),
      pickRegion: (code) => this.pickRegion(code),
    });
    this.side = new Side([["Findings", root.parentElement.querySelector(".finding-list")], ["Selection", element("div", {}, this.details, this.selection.root)]], info.payload);
    root.replaceChildren(this.toolbar(help), this.legend(), this.coverage, element("div", { class: "stage" }, drawn, this.side.root), this.status);
    this.tooltip = new Tooltip(this.canvasBox, this.timeline);
    this.minimap = new Minimap(map, this.timeline, columns, info, regions);
    listen(this.timeline, {
      toggleMeasure: () => this.measureButton.click(),
      nextMatch: (direction) => this.nextMatch(direction),
      focusSearch: () => this.searchBox.focus(),
      showHelp: () => help.showModal(),
      clear: () => this.clear(),
    });
    this.timeline.addEventListener("change", (event) => this.update(event.detail));
    this.startWithOneLaunch();
    this.fitHeight();
    this.update("select");
    this.update("filter");
  }

  // ---- controls ------------------------------------------------------------------------------------------------

  toolbar(help) {
    this.searchBox = element("input", {
      type: "search",
      placeholder: "Search: load sm:3",
      "aria-label": "Search spans by region name, sm:3, block:5, warp:0, dur>500 cycles",
      oninput: () => this.searchSoon(),
      onkeydown: (event) => {
        if (event.key === "Enter") this.nextMatch(event.shiftKey ? -1 : 1);
        if (event.key === "Escape") this.canvas.focus();
      },
    });
    this.found = element("output", { class: "found" });
    this.measureButton = element("button", { type: "button", "aria-pressed": "false", title: "Measure between two points (M, or Shift-drag)", text: "Measure", onclick: () => this.toggleMeasure() });
    const bar = element("div", { class: "toolbar", role: "toolbar", "aria-label": "Timeline controls" });
    bar.append(element("span", { class: "group" }, this.searchBox, this.button("‹", "Previous match (P)", () => this.nextMatch(-1)), this.button("›", "Next match (N)", () => this.nextMatch(1)), this.found));
    const { launches, roles } = this.info;
    if (launches.length > 1) bar.append(this.launchPicker());
    bar.append(this.smFilter());
    if (roles.length > 1) bar.append(this.picker("Role", [["all roles", ""], ...roles.map((role, at) => [role, at])], (value) => this.timeline.setFilter({ roles: value === "" ? null : new Set([Number(value)]) })));
    bar.append(this.picker("Rows", [["compact", "compact"], ["normal", "normal"], ["tall", "tall"]], (value) => this.setDensity(value), "normal"));
    const right = element("span", { class: "group right" }, this.measureButton);
    if (this.info.critical?.length) {
      this.criticalButton = element("button", { type: "button", "aria-pressed": "false", text: "Critical path", title: "Outline the critical path", onclick: () => this.toggleCritical() });
      right.append(this.criticalButton);
    }
    right.append(
      this.button("Open all", "Open every SM and block", () => this.openAll(true)),
      this.button("Close all", "Close every SM", () => this.openAll(false)),
      this.button("−", "Zoom out (S)", () => this.timeline.zoom(1 / 0.6)),
      this.button("+", "Zoom in (W)", () => this.timeline.zoom(0.6)),
      this.button("Fit", "Show everything (0)", () => this.timeline.fit()),
      this.button("?", "Keys and gestures", () => help.showModal()),
    );
    bar.append(right);
    return bar;
  }

  button(text, title, act) {
    return element("button", { type: "button", text, title, "aria-label": title, onclick: act });
  }

  picker(label, choices, act, chosen = "") {
    const select = element("select", { "aria-label": label, onchange: () => act(select.value) });
    for (const [text, value] of choices) select.append(element("option", { value: String(value), text }));
    select.value = String(chosen);
    return element("label", { class: "group" }, `${label} `, select);
  }

  launchPicker() {
    const { launches } = this.info;
    const name = (each) => `${each.kernel} #${each.launch}${launches.some((other) => other.rank !== each.rank) ? ` rank ${each.rank}` : ""} · ${duration(each.end_ns - each.begin_ns)}`;
    return this.picker("Launch", [[`all ${launches.length}`, ""], ...launches.map((each, at) => [name(each), at])], (value) => {
      this.timeline.setFilter({ launch: value === "" ? null : launches[Number(value)] });
    });
  }

  // If launches are far apart, they would be too narrow to see: show the longest first.
  startWithOneLaunch() {
    const { launches } = this.info;
    const lengths = launches.map((each) => each.end_ns - each.begin_ns);
    const busy = lengths.reduce((sum, length) => sum + length, 0);
    if (launches.length < 2 || busy > 0.3 * (this.trace.end - this.trace.begin)) return;
    const select = this.root.querySelector("select[aria-label=Launch]");
    select.value = String(lengths.indexOf(Math.max(...lengths)));
    select.dispatchEvent(new Event("change"));
    this.timeline.tree.openAll(false);
    this.timeline.tree.openFirst((track) => this.timeline.keeps(track));
    this.timeline.relayout();
  }

  smFilter() {
    const box = element("input", { type: "text", size: "8", placeholder: "all", "aria-label": "SMs to show, for example 0-3, 17", title: "For example 0-3, 17" });
    box.addEventListener("change", () => {
      const wanted = parseNumbers(box.value);
      box.toggleAttribute("aria-invalid", wanted === undefined);
      if (wanted !== undefined) this.timeline.setFilter({ sms: wanted });
    });
    this.smBox = box;
    return element("label", { class: "group" }, "SMs ", box);
  }

  legend() {
    const used = this.info.regions; // codes, the longest total first
    this.hidden = new Set();
    this.chips = new Map();
    const box = element("div", { class: "legend", role: "group", "aria-label": "Regions: click to hide or show, double-click for only this one" });
    used.forEach((code, at) => {
      const region = this.regions[code];
      const swatch = element("span", { class: "swatch" });
      swatch.style.background = region.colour;
      const chip = element("button", { type: "button", class: "chip", "aria-pressed": "true", title: `${region.name}: click to hide or show it, double-click (or O) to show only it` }, swatch, element("span", { text: region.name }));
      chip.addEventListener("click", () => this.toggleRegion(code));
      chip.addEventListener("dblclick", () => this.onlyRegion(code));
      chip.addEventListener("keydown", (event) => event.key.toLowerCase() === "o" && this.onlyRegion(code));
      if (at >= LEGEND_FIRST) chip.hidden = true;
      this.chips.set(code, chip);
      box.append(chip);
    });
    if (used.length > LEGEND_FIRST) {
      const more = this.button(`${used.length - LEGEND_FIRST} more`, "Show every region", () => {
        for (const chip of this.chips.values()) chip.hidden = false;
        more.remove();
      });
      box.append(more);
    }
    return box;
  }

  toggleRegion(code) {
    if (this.hidden.has(code)) this.hidden.delete(code);
    else this.hidden.add(code);
    this.applyRegions();
  }

  onlyRegion(code) {
    const others = this.info.regions.filter((other) => other !== code);
    const already = others.every((other) => this.hidden.has(other)) && !this.hidden.has(code);
    this.hidden = new Set(already ? [] : others);
    this.applyRegions();
  }

  applyRegions() {
    for (const [code, chip] of this.chips) chip.setAttribute("aria-pressed", String(!this.hidden.has(code)));
    const kept = new Set(this.info.regions.filter((code) => !this.hidden.has(code)));
    this.timeline.setFilter({ regions: this.hidden.size ? kept : null });
    if (this.matches) this.search();
  }

  // Select a stretch of time, whose statistics the column beside the timeline shows.
  selectTime(from, to) {
    this.timeline.measure = { from, to };
    this.timeline.changed("measure");
  }

  // Show the distribution of a region, and highlight its spans; a second time ends it.
  pickRegion(code) {
    const again = this.highlighted === code;
    this.highlight(again ? null : (row) => this.trace.region[row] === code);
    this.highlighted = again ? undefined : code;
    this.selection.chooseRegion(code);
  }

  // Draw every span for which `test` is false faintly.
  highlight(test) {
    this.highlighted = undefined;
    this.timeline.match = test && findMatches(this.trace, test, (track) => this.timeline.keeps(track)).flags;
    this.timeline.changed("search");
  }

  // ---- evidence of a finding -----------------------------------------------------------------------------------

  showEvidence(place) {
    const { timeline, trace } = this;
    const { tracks } = trace;
    const at = this.info.launches.findIndex((each) => each.launch === place.launch && each.rank === place.rank);
    this.showAll(this.info.launches.length > 1 ? at : -1);
    const named = [["sms", "sm"], ["blocks", "block"], ["warps", "warp"]].filter(([name]) => place[name].length).map(([name, column]) => [tracks[column], new Set(place[name])]);
    const inside = Uint8Array.from({ length: tracks.count }, (_, t) => (tracks.launch[t] === place.launch && named.every(([column, wanted]) => wanted.has(column[t])) ? 1 : 0));
    const plain = place.region < 0 && !named.length;
    this.highlight(plain ? null : (row) => inside[trace.track[row]] && (place.region < 0 || trace.region[row] === place.region));
    const margin = (place.end_ns - place.begin_ns) * 0.04;
    timeline.setWindow(place.begin_ns - margin, place.end_ns + margin);
    const track = trace.tracks.warp.findIndex((warp, t) => warp === place.warp && tracks.block[t] === place.block && tracks.launch[t] === place.launch && tracks.rank[t] === place.rank);
    if (track >= 0) timeline.openTrack(track);
    if (place.region >= 0) this.selection.chooseRegion(place.region);
    this.side.show(FINDINGS_TAB);
    this.root.scrollIntoView({ block: "nearest" });
  }

  // Remove every filter, but show one launch (its place in the list) where `launch` is not negative.
  showAll(launch = -1) {
    this.hidden = new Set();
    this.smBox.value = "";
    for (const select of this.root.querySelectorAll("select[aria-label=Role]")) select.value = "";
    for (const select of this.root.querySelectorAll("select[aria-label=Launch]")) select.value = launch < 0 ? "" : String(launch);
    this.timeline.setFilter({ sms: null, roles: null, launch: launch < 0 ? null : this.info.launches[launch] });
    this.applyRegions();
  }

  saveView() {
    const { begin, end, scroll, match, sms, roles, launch, tree } = this.timeline;
    const controls = [...this.root.querySelectorAll(".toolbar select, .toolbar input")].map((control) => [control, control.value]);
    return { begin, end, scroll, match, filter: { sms, roles, launch }, open: tree.opened(), hidden: new Set(this.hidden), controls };
  }

  restoreView({ begin, end, scroll, match, filter, open, hidden, controls }) {
    const { timeline } = this;
    for (const [control, value] of controls) control.value = value;
    this.hidden = hidden;
    timeline.setFilter(filter);
    this.applyRegions();
    timeline.tree.reopen(open);
    timeline.relayout();
    timeline.match = match;
    timeline.setWindow(begin, end);
    timeline.scrollBy(scroll - timeline.scroll);
  }

  setDensity(value) {
    this.timeline.density = value;
    this.timeline.relayout();
    this.fitHeight();
  }

  openAll(open) {
    this.timeline.tree.openAll(open);
    this.timeline.relayout();
    this.fitHeight();
  }

  // As tall as its rows, and no taller than what is left of the first screen.
  fitHeight() {
    const wanted = Math.max(this.timeline.layout.height + 30, LEAST_HEIGHT);
    const left = window.innerHeight - (this.canvasBox.getBoundingClientRect().top + window.scrollY) - BELOW;
    this.canvasBox.style.height = `${Math.min(wanted, left >= LEAST_HEIGHT ? left : Math.max(window.innerHeight - 260, LEAST_HEIGHT))}px`;
  }

  toggleMeasure() {
    this.timeline.measuring = !this.timeline.measuring;
    this.measureButton.setAttribute("aria-pressed", String(this.timeline.measuring));
    if (!this.timeline.measuring) this.timeline.measure = null;
    this.timeline.changed("measure");
  }

  toggleCritical() {
    const on = !this.timeline.critical;
    this.timeline.critical = on ? this.criticalStretches() : null;
    if (on && this.timeline.critical.length) this.timeline.scrollToTrack(this.timeline.critical[0].track);
    this.criticalButton.setAttribute("aria-pressed", String(on));
    this.timeline.changed("critical");
  }

  // The report identifies warps by launch, block and number; a sampled timeline may lack some of them.
  criticalStretches() {
    const { tracks } = this.trace;
    const key = (launch, block, warp) => `${launch}/${block}/${warp}`;
    const known = new Map();
    for (let t = 0; t < tracks.count; t++) known.set(key(tracks.launch[t], tracks.block[t], tracks.warp[t]), t);
    return this.info.critical
      .map(([launch, block, warp, begin, end]) => ({ track: known.get(key(launch, block, warp)), begin, end }))
      .filter(({ track }) => track !== undefined);
  }

  clear() {
    this.timeline.measure = null;
    if (this.timeline.measuring) this.toggleMeasure();
    if (this.matches) {
      this.searchBox.value = "";
      this.search();
    }
    this.timeline.picked.clear();
    this.timeline.changed("pick");
    this.highlight(null);
    this.timeline.select(-1);
    this.dispatchEvent(new Event("clear"));
  }

  // ---- search --------------------------------------------------------------------------------------------------

  searchSoon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.search(), 120);
  }

  search() {
    clearTimeout(this.waiting);
    this.waiting = 0;
    this.matches = null;
    this.matchAt = -1;
    this.searchBox.removeAttribute("aria-invalid");
    this.searchBox.title = "";
    try {
      const test = compileQuery(this.searchBox.value, this.trace, this.regions);
      const { shown } = this.timeline;
      if (test) this.matches = findMatches(this.trace, (row) => shown[this.trace.region[row]] && test(row), (track) => this.timeline.keeps(track));
    } catch (error) {
      this.searchBox.setAttribute("aria-invalid", "true");
      this.searchBox.title = error.message;
      this.found.textContent = error.message;
      this.timeline.match = null;
      this.timeline.changed("search");
      return;
    }
    this.timeline.match = this.matches?.flags ?? null;
    this.showFound();
    this.timeline.changed("search");
  }

  showFound() {
    const total = this.matches?.rows.length;
    this.found.textContent = total === undefined ? "" : total ? `${this.matchAt < 0 ? "" : `${integer(this.matchAt + 1)} of `}${integer(total)}` : "nothing found";
  }

  nextMatch(direction) {
    if (this.waiting) this.search();
    if (!this.matches?.rows.length) return;
    const { rows } = this.matches;
    this.matchAt = (this.matchAt + direction + rows.length) % rows.length;
    if (this.matchAt < 0) this.matchAt = rows.length - 1;
    this.choose(rows[this.matchAt]);
    this.showFound();
  }

  choose(row) {
    this.timeline.select(row);
    this.timeline.reveal(row);
  }

  // Called by a heat map: show this SM around this time.
  goTo(sm, begin, end) {
    const node = this.timeline.tree.roots.find((root) => root.label === sm);
    if (node) {
      node.open = true;
      this.timeline.relayout();
      const row = this.timeline.layout.rows.find((each) => each.node === node);
      if (row) this.timeline.scrollBy(row.top - this.timeline.scroll);
    }
    this.timeline.setWindow(begin, end);
    this.root.scrollIntoView({ block: "start" });
    this.canvas.focus({ preventScroll: true });
  }

  // ---- what changed --------------------------------------------------------------------------------------------

  update(what) {
    if (what === "select") {
      showDetails(this.details, this.timeline, (row) => this.choose(row));
      if (this.timeline.selected >= 0) this.selection.region = this.trace.region[this.timeline.selected];
    }
    if (what === "filter") this.countShown();
    if (what === "hover") this.tooltip.update();
    const { measure, selected, picked } = this.timeline;
    if ((what === "select" && selected >= 0) || (what === "measure" && measure) || (what === "pick" && picked.size)) this.side.show(SELECTION_TAB);
    if (["filter", "measure", "select", "pick"].includes(what)) this.selection.soon();
    if (["filter", "hover", "measure", "select"].includes(what)) this.showStatus();
  }

  // Say what is not shown, and offer to show it.
  countShown() {
    const { timeline, info } = this;
    this.counted = timeline.countShown();
    const [blocks, all] = timeline.countBlocks();
    this.coverage.hidden = this.counted === info.shown;
    const part = info.shown ? (100 * this.counted) / info.shown : 0;
    const why = [timeline.launch && `launch ${timeline.launch.kernel} #${timeline.launch.launch} of ${integer(info.launches.length)}`, timeline.sms && `SMs ${this.smBox.value}`, timeline.roles && "one role", this.hidden.size && `${integer(this.hidden.size)} region${this.hidden.size === 1 ? "" : "s"} hidden`].filter(Boolean);
    this.coverage.replaceChildren(
      `${integer(blocks)} of ${integer(all)} blocks shown, ${part < 10 ? part.toFixed(1) : integer(part)} % of the spans (${why.join(", ")}). `,
      element("button", { type: "button", text: "Show all", onclick: () => (this.showAll(), timeline.fit()) }),
    );
  }

  showStatus() {
    const { timeline, info } = this;
    const text = timeline.measure ? `measured ${measureText(timeline)}` : timeline.cursor ? preciseTime(timeline.cursor.time) : "";
    const part = info.shown < info.spans ? ` (this report has ${integer(info.shown)} of ${integer(info.spans)}: ${info.sampling})` : "";
    this.status.replaceChildren(
      element("span", { text: text || "Ctrl-wheel zooms, drag pans, click selects, Shift-drag selects time" }),
      element("span", { class: "count", text: `${integer(this.counted)} of ${integer(info.shown)} spans shown${part}` }),
    );
  }
}

// Parse "0-3, 17" as a set; null if empty, undefined if invalid.
export function parseNumbers(text) {
  const words = text.split(/[\s,]+/).filter(Boolean);
  if (!words.length) return null;
  const wanted = new Set();
  for (const word of words) {
    const range = /^(\d+)(?:-(\d+))?$/.exec(word);
    if (!range) return undefined;
    const last = Math.min(Number(range[2] ?? range[1]), 65535);
    for (let at = Number(range[1]); at <= last; at++) wanted.add(at);
  }
  return wanted;
}
