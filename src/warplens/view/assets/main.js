// Start the report: one panel per trace, linked; heat maps; statistics; theme.

import { element } from "./details.js";
import { followFindings } from "./evidence.js";
import { Flame } from "./flame.js";
import { BlockMap, OverTimeMap } from "./heatmap.js";
import { openPanel } from "./panel.js";
import { enliven } from "./statistics.js";
import { followTheme, readTheme } from "./theme.js";

const report = JSON.parse(document.getElementById("report").textContent);

async function start() {
  const help = document.getElementById("help");
  const painted = [];
  const panels = [];
  for (const [at, info] of report.traces.entries()) {
    const root = document.querySelector(`.panel[data-trace="${at}"]`);
    const panel = await openPanel(root, info, report.regions, help);
    panels.push(panel);
    painted.push(panel.timeline);
    panel.flame = new Flame(document.querySelector(`.flame-box[data-trace="${at}"]`), panel);
    const heat = document.querySelector(`.heat-slot[data-trace="${at}"]`);
    for (const map of info.over_time) {
      const goTo = map.by === "sm" ? (label, begin, end) => panel.goTo(label, begin, end) : null;
      painted.push(new OverTimeMap(box(heat), map, panel.columns, report.regions, goTo));
    }
    if (info.blocks) painted.push(new BlockMap(box(heat), info.blocks, panel.columns, report.regions));
  }
  link(panels);
  const histogram = enliven(document.getElementById("statistics"), report, readTheme);
  followTheme(document.getElementById("theme"), (theme) => {
    for (const each of painted) each.setTheme(theme);
    histogram?.refresh();
  });
  followFindings(panels);
  Object.assign(window, { warplens: { report, panels, timelines: panels.map((panel) => panel.timeline) } });
  document.documentElement.dataset.ready = "true";
}

function box(slot) {
  const made = element("div", { class: "heat-map" });
  slot.before(made);
  return made;
}

// Two timelines zoom and pan together while the box is ticked.
function link(panels) {
  const tick = document.getElementById("linked");
  if (!tick || panels.length < 2) return;
  let busy = false;
  for (const panel of panels) {
    panel.timeline.addEventListener("change", (event) => {
      if (busy || event.detail !== "window" || !tick.checked) return;
      busy = true;
      for (const other of panels) if (other !== panel) other.timeline.setWindow(panel.timeline.begin, panel.timeline.end);
      busy = false;
    });
  }
}

start().catch((error) => {
  const note = document.getElementById("problem");
  note.hidden = false;
  note.textContent = `The interactive parts failed to start: ${error.message}. They need a browser from 2023 or later.`;
  throw error;
});
