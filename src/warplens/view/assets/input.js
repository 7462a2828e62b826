// Mouse, wheel, touch and keys on a timeline.

import { GUTTER, RULER } from "./geometry.js";
import { SPAN } from "./trace.js";

const CLICK_SLACK = 4;

export function listen(timeline, actions) {
  const { canvas } = timeline;
  canvas.addEventListener("wheel", (event) => onWheel(timeline, event), { passive: false });
  canvas.addEventListener("keydown", (event) => onKey(timeline, actions, event));
  canvas.addEventListener("dblclick", (event) => {
    const row = timeline.spanAt(...place(timeline, event));
    if (row >= 0) zoomTo(timeline, row);
  });
  new Pointers(timeline, actions);
}

function place(timeline, event) {
  const box = timeline.canvas.getBoundingClientRect();
  return [event.clientX - box.left, event.clientY - box.top];
}

// Plain wheel scrolls the rows, and the page at either end. Ctrl, ⌘ or Alt zooms. Shift or a sideways wheel pans.
function onWheel(timeline, event) {
  const [x] = place(timeline, event);
  const unit = event.deltaMode === 1 ? 16 : event.deltaMode === 2 ? timeline.plotHeight : 1;
  const [dx, dy] = [event.deltaX * unit, event.deltaY * unit];
  if (event.ctrlKey || event.metaKey || event.altKey) {
    timeline.zoom(Math.exp(dy * 0.0022), timeline.timeAt(Math.max(x, GUTTER)));
  } else if (event.shiftKey || Math.abs(dx) > Math.abs(dy)) {
    timeline.pan(dx || dy);
  } else if (!timeline.scrollBy(dy)) {
    return;
  }
  event.preventDefault();
}

class Pointers {
  constructor(timeline, actions) {
    this.timeline = timeline;
    this.actions = actions;
    this.down = new Map();
    const { canvas } = timeline;
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", (event) => this.release(event, true));
    canvas.addEventListener("pointerleave", () => this.leave());
  }

  press(event) {
    if (event.button) return;
    const { timeline } = this;
    const [x, y] = place(timeline, event);
    timeline.canvas.setPointerCapture(event.pointerId);
    this.down.set(event.pointerId, { x, y });
    this.moved = 0;
    if (this.down.size === 2) {
      this.drag = { kind: "pinch", ...this.spread() };
    } else if (y < RULER && x > GUTTER) {
      this.drag = { kind: "range", from: timeline.timeAt(x) };
    } else if (x > timeline.width - 12 && timeline.layout.height > timeline.plotHeight) {
      this.drag = { kind: "scrollbar" };
    } else if ((event.shiftKey || timeline.measuring) && x > GUTTER) {
      const edge = this.edge(x, y);
      this.drag = { kind: "measure" };
      timeline.measure = { from: edge.time, fromCycle: edge.cycle, fromSm: edge.sm, to: edge.time, toCycle: edge.cycle, toSm: edge.sm };
      timeline.changed("measure");
    } else {
      this.drag = { kind: "pan" };
    }
  }

  move(event) {
    const { timeline } = this;
    const [x, y] = place(timeline, event);
    const last = this.down.get(event.pointerId);
    if (!last) return this.hover(x, y);
    this.moved += Math.abs(x - last.x) + Math.abs(y - last.y);
    this.down.set(event.pointerId, { x, y });
    if (this.drag.kind === "pinch" && this.down.size === 2) {
      const now = this.spread();
      timeline.zoom(this.drag.gap / Math.max(now.gap, 1), timeline.timeAt(now.middle));
      timeline.pan(this.drag.middle - now.middle);
      this.drag = { kind: "pinch", ...now };
    } else if (this.moved <= CLICK_SLACK) {
      return undefined;
    } else if (this.drag.kind === "pan") {
      timeline.pan(last.x - x);
      timeline.scrollBy(last.y - y);
    } else if (this.drag.kind === "scrollbar") {
      timeline.scrollBy(((y - last.y) * timeline.layout.height) / timeline.plotHeight);
    } else if (this.drag.kind === "range") {
      timeline.measure = { from: this.drag.from, to: timeline.timeAt(Math.max(x, GUTTER)) };
      timeline.changed("measure");
    } else if (this.drag.kind === "measure") {
      const edge = this.edge(x, y);
      Object.assign(timeline.measure, { to: edge.time, toCycle: edge.cycle, toSm: edge.sm });
      timeline.changed("measure");
    }
    return undefined;
  }

  release(event, cancelled = false) {
    const { timeline } = this;
    if (!this.down.delete(event.pointerId)) return;
    const [x, y] = place(timeline, event);
    if (this.drag.kind === "range") {
      const { measure } = timeline;
      timeline.measure = null;
      if (measure && !cancelled) timeline.setWindow(Math.min(measure.from, measure.to), Math.max(measure.from, measure.to));
      timeline.changed("measure");
    } else if (!cancelled && this.moved <= CLICK_SLACK && this.drag.kind === "pan") {
      this.click(x, y, event.ctrlKey || event.metaKey || event.shiftKey);
    }
    if (this.down.size === 1) this.drag = { kind: "pan" };
  }

  // On the name of a row: open or close it and select it; with Ctrl or Shift only select it, besides others.
  click(x, y, add) {
    const { timeline } = this;
    if (x < GUTTER) {
      const row = timeline.rowAt(y);
      if (!row) return;
      const { node } = row;
      if (!add && node.children.length) timeline.toggle(node);
      timeline.pick(node, add, !add && node.children.length ? node.open : undefined);
      return;
    }
    if (timeline.measure) {
      timeline.measure = null;
      timeline.changed("measure");
    }
    timeline.select(timeline.spanAt(x, y));
  }

  hover(x, y) {
    const { timeline } = this;
    const row = y > RULER ? timeline.spanAt(x, y) : -1;
    timeline.canvas.style.cursor = x < GUTTER ? "pointer" : y < RULER ? "col-resize" : timeline.measuring ? "crosshair" : row >= 0 ? "pointer" : "grab";
    timeline.cursor = x > GUTTER ? { time: timeline.timeAt(x), x, y } : null;
    timeline.hovered = row;
    timeline.changed("hover");
  }

  leave() {
    this.timeline.hovered = -1;
    this.timeline.cursor = null;
    this.timeline.changed("hover");
  }

  spread() {
    const [a, b] = [...this.down.values()];
    return { gap: Math.abs(a.x - b.x) + 1, middle: (a.x + b.x) / 2 };
  }

  // A measurement snaps to the edge of a span within a few pixels, which gives its exact cycle.
  edge(x, y) {
    const { timeline } = this;
    const { trace } = timeline;
    const time = timeline.timeAt(Math.max(x, GUTTER));
    const row = timeline.spanAt(x, y);
    if (row < 0) return { time };
    const sm = `${trace.tracks.rank[trace.track[row]]}/${trace.tracks.device[trace.track[row]]}/${trace.tracks.sm[trace.track[row]]}`;
    const edges = [
      { time: trace.start[row], cycle: trace.cycle[row], sm },
      { time: trace.start[row] + trace.dur[row], cycle: trace.cycle[row] + trace.cycles[row], sm },
    ];
    const near = edges.filter((edge) => Math.abs(edge.time - time) < 8 * timeline.perPixel);
    return near.sort((a, b) => Math.abs(a.time - time) - Math.abs(b.time - time))[0] ?? { time };
  }
}

export function zoomTo(timeline, row) {
  const { start, dur } = timeline.trace;
  const margin = Math.max(dur[row] * 0.25, 2);
  timeline.setWindow(start[row] - margin, start[row] + dur[row] + margin);
}

function onKey(timeline, actions, event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const step = timeline.plotWidth * (event.shiftKey ? 0.5 : 0.12);
  const around = timeline.cursor?.time;
  const chosen = timeline.selected >= 0;
  const keys = {
    w: () => timeline.zoom(0.75, around),
    s: () => timeline.zoom(1 / 0.75, around),
    a: () => timeline.pan(-step),
    d: () => timeline.pan(step),
    "+": () => timeline.zoom(0.6),
    "=": () => timeline.zoom(0.6),
    "-": () => timeline.zoom(1 / 0.6),
    0: () => timeline.fit(),
    f: () => (chosen ? zoomTo(timeline, timeline.selected) : timeline.fit()),
    e: () => toggleSelected(timeline),
    r: () => pickSelected(timeline),
    ArrowLeft: () => (chosen ? step1(timeline, -1) : timeline.pan(-step)),
    ArrowRight: () => (chosen ? step1(timeline, 1) : timeline.pan(step)),
    ArrowUp: () => (chosen ? selectParent(timeline) : timeline.scrollBy(-60)),
    ArrowDown: () => (chosen ? selectChild(timeline) : timeline.scrollBy(60)),
    PageUp: () => timeline.scrollBy(-timeline.plotHeight),
    PageDown: () => timeline.scrollBy(timeline.plotHeight),
    Home: () => timeline.scrollBy(-Infinity),
    End: () => timeline.scrollBy(1e12),
    Enter: () => selectFirst(timeline),
    m: () => actions.toggleMeasure(),
    n: () => actions.nextMatch(1),
    p: () => actions.nextMatch(-1),
    "/": () => actions.focusSearch(),
    "?": () => actions.showHelp(),
    Escape: () => actions.clear(),
  };
  const act = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!act) return;
  act();
  event.preventDefault();
}

// The span before or after the selected one on the same line of the same warp.
function step1(timeline, direction) {
  const { trace, selected } = timeline;
  const track = trace.track[selected];
  const [first, stop] = [trace.tracks.first[track], trace.tracks.first[track + 1]];
  for (let i = selected + direction; i >= first && i < stop; i += direction) {
    if (trace.lane[i] !== trace.lane[selected] || !timeline.shown[trace.region[i]]) continue;
    return choose(timeline, i);
  }
  return undefined;
}

function selectParent(timeline) {
  const parent = timeline.trace.parent[timeline.selected];
  if (parent >= 0) choose(timeline, parent);
}

function selectChild(timeline) {
  const { trace, selected } = timeline;
  const stop = trace.tracks.first[trace.track[selected] + 1];
  for (let i = selected + 1; i < stop && trace.start[i] <= trace.start[selected] + trace.dur[selected]; i++) {
    if (trace.parent[i] === selected) return choose(timeline, i);
  }
  return undefined;
}

// Without a selection: the first visible span of the topmost row.
function selectFirst(timeline) {
  const { trace, layout } = timeline;
  const row = layout.rows.find((each) => each.top >= timeline.scroll && each.node.kind === "warp") ?? layout.rows[0];
  if (!row) return;
  const track = row.tracks[0];
  for (let i = trace.tracks.first[track]; i < trace.tracks.first[track + 1]; i++) {
    const seen = trace.start[i] + trace.dur[i] >= timeline.begin && trace.kind[i] === SPAN && timeline.shown[trace.region[i]];
    if (seen) return choose(timeline, i);
  }
}

function toggleSelected(timeline) {
  const { trace, selected, tree } = timeline;
  if (selected < 0) return;
  const leaf = tree.leaf[trace.track[selected]];
  const node = leaf.parent.parent.open ? leaf.parent : leaf.parent.parent;
  timeline.toggle(node);
}

// Select the warp of the selected span, then its block, then its SM.
function pickSelected(timeline) {
  const { trace, selected, tree, picked } = timeline;
  if (selected < 0) return;
  const warp = tree.leaf[trace.track[selected]];
  const chain = [warp, warp.parent, warp.parent.parent];
  timeline.pick(chain[(chain.findIndex((node) => picked.has(node)) + 1) % chain.length], false, true);
}

function choose(timeline, row) {
  timeline.select(row);
  timeline.reveal(row);
}
