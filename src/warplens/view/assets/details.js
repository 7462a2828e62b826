// The details of the selected span. Names come from a trace and are only ever set as text.

import { arrowsOf } from "./arrows.js";
import { duration, integer } from "./format.js";
import { KIND_NAMES } from "./trace.js";

const LINKS = 4; // arrows of a span that are listed

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "class") made.className = value;
    else if (key === "text") made.textContent = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// Pairs of a name and a text, in the order shown.
export function describe(timeline, row) {
  const { trace, info, regions } = timeline;
  const track = trace.track[row];
  const { tracks } = trace;
  const launch = info.launches.find((each) => each.launch === tracks.launch[track] && each.rank === tracks.rank[track]);
  const facts = [];
  const add = (name, text) => facts.push([name, text]);
  if (trace.kind[row] === 0) add("duration", `${integer(trace.cycles[row])} cycles`);
  if (trace.kind[row] === 0) add("", `${integer(trace.dur[row])} ns`);
  if (trace.open.has(row)) add("open", "its end was never recorded");
  if (trace.barriers.has(row)) add("barrier", `0x${(trace.value.get(row) % 2 ** 32).toString(16)}`);
  else if (trace.value.has(row)) add("value", String(trace.value.get(row)));
  add("start", `${integer(trace.start[row])} ns`);
  add("start cycle", integer(trace.cycle[row]));
  if (info.clock.anchors) add("clock error", `± ${integer(info.clock.error_p99_ns)} ns (p99)`);
  add("SM", String(tracks.sm[track]));
  add("block", blockText(tracks.block[track], launch));
  add("warp", String(tracks.warp[track]) + (tracks.lane[track] ? `, lane ${tracks.lane[track]}` : ""));
  if (info.roles.length > 1) add("role", info.roles[tracks.role[track]]);
  add("kernel", `${info.kernels[tracks.kernel[track]]} #${tracks.launch[track]}`);
  if (info.launches.some((each) => each.rank !== info.launches[0].rank)) add("rank", String(tracks.rank[track]));
  if (tracks.device[track]) add("device", String(tracks.device[track]));
  add("depth", String(trace.depth[row]));
  if (trace.kind[row]) add("kind", KIND_NAMES[trace.kind[row]]);
  const { location, caution } = regions[trace.region[row]];
  if (caution) add("caution", caution);
  if (location) add("source", location.split("/").pop()); // the Source section has the full path
  return facts;
}

function blockText(block, launch) {
  if (!launch || (launch.grid[1] === 1 && launch.grid[2] === 1)) return String(block);
  const [x, y] = launch.grid;
  return `${block} (${block % x}, ${Math.floor(block / x) % y}, ${Math.floor(block / (x * y))})`;
}

export function showDetails(panel, timeline, choose) {
  const { trace, regions, selected } = timeline;
  if (selected < 0) {
    panel.replaceChildren(
      element("p", { class: "hint", text: "Click a span to see its cycles, time, location and source." }),
      element("p", { class: "hint" }, "Shift-drag measures. ", element("kbd", { text: "?" }), " lists every key."),
    );
    return;
  }
  const region = regions[trace.region[selected]];
  const swatch = element("span", { class: "swatch" });
  swatch.style.background = region.colour;
  const title = element("h3", {}, swatch, element("span", { text: region.name }));
  const list = element("dl");
  for (const [name, text] of describe(timeline, selected)) list.append(element("dt", { text: name }), element("dd", { text }));
  const parent = trace.parent[selected];
  const links = element("div", { class: "links" });
  if (parent >= 0) {
    const inside = `inside ${regions[trace.region[parent]].name} (${duration(trace.dur[parent])})`;
    links.append(element("button", { type: "button", text: `↑ ${inside}`, onclick: () => choose(parent) }));
  }
  for (const [record, wait] of arrowsOf(trace, selected).slice(0, LINKS)) {
    const released = wait === selected;
    const row = released ? (trace.parent[record] >= 0 ? trace.parent[record] : record) : wait;
    const text = `${released ? "← released by" : "→ released"} ${regions[trace.region[row]].name}, warp ${trace.tracks.warp[trace.track[row]]}`;
    links.append(element("button", { type: "button", text, onclick: () => choose(row) }));
  }
  panel.replaceChildren(title, list, links);
}
