// The live page: fetch the newest state again and again, and show it.

import { Columns, inflate } from "./codec.js";
import { element } from "./details.js";
import { duration, integer } from "./format.js";
import { listen } from "./input.js";
import { Minimap } from "./minimap.js";
import { fetchStates, quoted, tell } from "./states.js";
import { followTheme } from "./theme.js";
import { Timeline } from "./timeline.js";
import { Tooltip } from "./tooltip.js";
import { unpackTrace } from "./trace.js";

const LATE_S = 2; // without news
const WINDOWS = [["0.1 s", 1e8], ["1 s", 1e9], ["10 s", 1e10], ["whole run", Infinity]];
const byId = (id) => document.getElementById(id);

const live = { state: null, received: 0, following: true, paused: false, length: 1e10, timeline: null, updates: 0 };

async function show(state) {
  const received = performance.now();
  showFacts(state);
  showKernels(state);
  showWhere(state);
  showRegions(state);
  await showTimeline(state);
  Object.assign(live, { state, received, updates: live.updates + 1 });
  tellAge();
}

function tellAge() {
  if (!live.state || byId("state").dataset.state === "ended") return;
  const age = live.state.age_s + (performance.now() - live.received) / 1000;
  live.age = age;
  tell(age > LATE_S ? "late" : "live", live.paused ? "paused" : `live, ${age.toFixed(1)} s old`);
}

// ---- tables ----------------------------------------------------------------------------------------------------

function showFacts(state) {
  const running = state.where.reduce((sum, each) => sum + each.running, 0);
  const newest = state.kernels.filter((each) => each.running_s !== null);
  const facts = [
    ["running for", duration(state.elapsed_s * 1e9)],
    ["kernel now", newest.map((each) => each.name).join(", ") || "none"],
    ["warps running", running ? integer(running) : "0"],
    ["launches", integer(state.kernels.reduce((sum, each) => sum + each.launches, 0))],
    ["spans shown", integer(state.timeline.shown)],
    ["each look takes", duration(state.cost_s * 1e9)],
  ];
  byId("facts").replaceChildren(...facts.map(([name, text]) => element("div", {}, element("dt", { text: name }), element("dd", { text }))));
  const said = [...state.timeline.left_out, ...state.warnings];
  byId("warnings").hidden = !said.length;
  byId("warnings").replaceChildren(...said.map((text) => element("li", { text })));
}

function showKernels({ kernels }) {
  const row = (each) =>
    element("tr", {}, element("td", { class: "name", text: each.name, title: each.name }), element("td", { text: integer(each.launches) }), element("td", { text: integer(each.recorded) }),
      element("td", { class: each.running_s === null ? "" : "running", text: each.running_s === null ? "" : duration(each.running_s * 1e9) }));
  byId("kernels").replaceChildren(...kernels.map(row));
}

function showWhere({ where }) {
  const rows = where.map((each) => {
    const counts = [`${integer(each.running)} running`, each.ended ? `${integer(each.ended)} ended` : "", each.unstarted ? `${integer(each.unstarted)} not started` : ""];
    const groups = [...each.groups.map((text) => element("li", {}, ...quoted(text))), ...(each.more ? [element("li", { text: `and ${each.more} more groups` })] : [])];
    return element("li", {}, element("span", { class: "head", text: `${each.kernel}: ${counts.filter(Boolean).join(", ")}` }), element("ul", {}, ...groups));
  });
  byId("where").replaceChildren(...(rows.length ? rows : [element("li", { class: "hint", text: "No recorded kernel runs at this moment." })]));
}

function showRegions({ statistics, regions }) {
  const most = Math.max(...statistics.map((each) => each.now), 1);
  const row = (each) => {
    const { colour, location } = regions[each.code];
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = colour;
    const filled = element("span");
    Object.assign(filled.style, { width: `${(100 * each.now) / most}%`, background: colour });
    const bar = element("span", { class: "track" }, filled);
    const name = element("td", { class: "name", title: each.name }, swatch, each.name, ...(location ? [element("small", { text: location.split("/").pop() })] : []));
    const cells = each.count ? [integer(each.count), `${(100 * each.share).toFixed(1)} %`, duration(each.mean_ns), duration(each.max_ns)] : ["0", "", "", ""];
    return element("tr", {}, name, element("td", { class: "now" }, bar, integer(each.now)), ...cells.map((text) => element("td", { text })));
  };
  byId("regions").replaceChildren(...statistics.map(row));
}

// ---- timeline --------------------------------------------------------------------------------------------------

async function showTimeline({ timeline: info, payload, regions }) {
  const columns = new Columns(await inflate(payload), info.columns);
  const trace = unpackTrace(columns);
  // The axis covers the whole run; spans are there for its latest part.
  trace.begin = Math.min(info.begin, trace.begin);
  trace.end = Math.max(info.end, trace.end);
  live.newest = trace.tracks.count ? trace.tracks.end.reduce((most, end) => Math.max(most, end), -Infinity) : trace.end;
  live.oldest = trace.tracks.count ? trace.tracks.begin.reduce((least, begin) => Math.min(least, begin), Infinity) : trace.begin;
  byId("drawn").textContent = `${integer(info.shown)} spans of the last ${duration(live.newest - live.oldest)}; the strip above them shows the whole run`;
  if (!live.timeline) openTimeline(trace, columns, info, regions);
  else {
    live.minimap.replace(columns, info, regions);
    live.timeline.replaceTrace(trace, info, regions);
  }
  if (live.following) follow();
}

function openTimeline(trace, columns, info, regions) {
  const root = byId("live-timeline");
  const timeline = new Timeline(root.querySelector("canvas.timeline"), trace, info, regions);
  live.timeline = timeline;
  live.minimap = new Minimap(root.querySelector("canvas.minimap"), timeline, columns, info, regions);
  const tooltip = new Tooltip(root.querySelector(".canvas-box"), timeline);
  const nothing = () => undefined;
  listen(timeline, { toggleMeasure: nothing, nextMatch: nothing, focusSearch: nothing, showHelp: nothing, clear: () => timeline.select(-1) });
  timeline.addEventListener("change", ({ detail }) => {
    if (detail === "hover") tooltip.update();
    if (detail === "window" && !live.moving) setFollowing(false); // whoever looks at something else is left alone
  });
  timeline.canvas.addEventListener("keydown", (event) => event.key.toLowerCase() === "f" && setFollowing(true));
  root.querySelector(".toolbar").append(...controls(timeline));
  followTheme(byId("theme"), (theme) => timeline.setTheme(theme));
}

function controls(timeline) {
  const button = (text, title, act, more = {}) => element("button", { type: "button", text, title, onclick: act, ...more });
  live.followButton = button("Follow", "Keep the newest records in view (F)", () => setFollowing(!live.following), { "aria-pressed": "true" });
  live.pauseButton = button("Pause", "Stop updating this page", () => setPaused(!live.paused), { "aria-pressed": "false" });
  const select = element("select", { "aria-label": "Window", onchange: () => ((live.length = Number(select.value)), setFollowing(true)) });
  for (const [text, length] of WINDOWS) select.append(element("option", { value: String(length), text }));
  select.value = String(live.length);
  const right = element("span", { class: "group right" }, button("Open all", "Open every SM and block", () => openAll(true)), button("Close all", "Close every SM", () => openAll(false)),
    button("−", "Zoom out (S)", () => timeline.zoom(1 / 0.6)), button("+", "Zoom in (W)", () => timeline.zoom(0.6)));
  return [live.followButton, element("label", { class: "group" }, "Window ", select), live.pauseButton, right];
}

function openAll(open) {
  live.timeline.tree.openAll(open);
  live.timeline.relayout();
}

function setFollowing(on) {
  live.following = on;
  live.followButton.setAttribute("aria-pressed", String(on));
  if (on) follow();
}

function setPaused(on) {
  live.paused = on;
  live.pauseButton.setAttribute("aria-pressed", String(on));
  tellAge();
}

function follow() {
  const { begin } = live.timeline.trace;
  const length = Math.min(live.length, live.newest - begin || 1);
  live.moving = true;
  live.timeline.setWindow(live.newest - length, live.newest + length * 0.02);
  live.moving = false;
}

window.warplensLive = live;
setInterval(tellAge, 200);
fetchStates(show, { over: "the program has ended", lost: "the program has ended or was stopped", next: () => (live.paused ? null : live.state?.number ?? 0) });
