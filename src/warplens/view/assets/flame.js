// Nested regions as an icicle: widths are shares of warp time, children stand below their parents.

import { element } from "./details.js";
import { integer } from "./format.js";
import { overlap, selectionOf } from "./selection.js";
import { SPAN } from "./trace.js";

const ROW = 24; // pixels
const NARROWEST = 0.0015; // of the width; what is narrower is not drawn
const WARP_CHOICES = 64;

// The tree of regions by nesting, summed over the spans of a selection; `nodeOf` has the node of every span, or -1.
export function nestingTree(trace, { begin, end, tracks, shown }, regions) {
  const root = { region: -1, cycles: 0, count: 0, children: [], parent: null, depth: -1 };
  const nodes = [];
  const known = new Map();
  const nodeOf = new Int32Array(trace.count).fill(-1);
  for (const t of tracks) {
    const [first, stop] = [trace.tracks.first[t], trace.tracks.first[t + 1]];
    let [low, high] = [Infinity, -Infinity];
    for (let i = first; i < stop; i++) {
      low = Math.min(low, trace.cycle[i]);
      high = Math.max(high, trace.cycle[i] + trace.cycles[i]);
      if (trace.kind[i] !== SPAN || !shown[trace.region[i]]) continue;
      const part = overlap(trace.start[i], trace.dur[i], begin, end);
      if (!part) continue;
      let outer = trace.parent[i];
      while (outer >= 0 && nodeOf[outer] < 0) outer = trace.parent[outer]; // a hidden region's children move up
      const above = outer < 0 ? -1 : nodeOf[outer];
      const key = (above + 1) * regions.length + trace.region[i];
      let at = known.get(key);
      if (at === undefined) {
        const parent = above < 0 ? root : nodes[above];
        at = nodes.push({ region: trace.region[i], cycles: 0, count: 0, children: [], parent, depth: parent.depth + 1 }) - 1;
        parent.children.push(nodes[at]);
        known.set(key, at);
      }
      nodeOf[i] = at;
      nodes[at].cycles += trace.cycles[i] * part;
      nodes[at].count++;
    }
    if (stop > first) root.cycles += (high - low) * overlap(trace.tracks.begin[t], trace.tracks.end[t] - trace.tracks.begin[t], begin, end);
  }
  for (const node of [root, ...nodes]) node.children.sort((a, b) => b.cycles - a.cycles);
  return { root, nodes, nodeOf };
}

export class Flame {
  constructor(box, panel) {
    Object.assign(this, { panel, zoomed: null, warp: "" });
    const { tracks } = panel.trace;
    const warps = [...new Set(tracks.warp)].sort((a, b) => a - b).slice(0, WARP_CHOICES);
    this.picker = element("select", { "aria-label": "Warps of the flame view", onchange: () => this.choose() });
    for (const [text, value] of [["all warps", ""], ["warp of the selected span", "selected"], ...warps.map((warp) => [`warp ${warp} of every block`, warp])]) this.picker.append(element("option", { text, value: String(value) }));
    this.whole = element("button", { type: "button", text: "Whole", title: "Show every region again", onclick: () => this.zoom(null) });
    this.note = element("span", { class: "note", role: "status" });
    this.plot = element("div", { class: "icicle", role: "group", "aria-label": "Regions by nesting: click to highlight in the timeline, double-click (or Z) to enlarge" });
    box.replaceChildren(element("div", { class: "flame-head" }, element("label", {}, "Show ", this.picker), this.whole, this.note), this.plot);
    panel.timeline.addEventListener("change", (event) => {
      const selected = event.detail === "select" && this.picker.value === "selected";
      if (selected || ["filter", "pick", "measure"].includes(event.detail)) this.soon();
      else if (event.detail === "select") this.markSelected();
    });
    this.soon();
  }

  choose() {
    this.zoomed = null;
    this.soon();
  }

  soon() {
    clearTimeout(this.waiting);
    this.waiting = setTimeout(() => this.build(), 80);
  }

  build() {
    clearTimeout(this.waiting);
    const { trace, timeline, regions } = this.panel;
    const selection = selectionOf(timeline);
    const { value } = this.picker;
    const wanted = value === "selected" ? timeline.selected >= 0 && ((t) => t === trace.track[timeline.selected]) : value !== "" && ((t) => trace.tracks.warp[t] === Number(value));
    if (wanted) selection.tracks = selection.tracks.filter(wanted);
    this.tree = nestingTree(trace, selection, regions);
    this.zoomed = null;
    this.count = selection.tracks.length;
    this.draw();
  }

  zoom(node) {
    this.zoomed = node;
    this.draw();
  }

  draw() {
    const { root } = this.tree;
    const top = this.zoomed ?? root;
    this.boxes = new Map();
    this.deepest = 0;
    this.plot.replaceChildren();
    if (this.zoomed) this.box(top, 0, 1, 0);
    this.place(top, 0, 1, this.zoomed ? 1 : 0);
    this.plot.style.height = `${(this.deepest + 1) * ROW}px`;
    this.whole.hidden = !this.zoomed;
    const marked = root.children.reduce((sum, child) => sum + child.cycles, 0);
    const outside = root.cycles ? Math.max(0, 1 - marked / root.cycles) : 0;
    this.note.textContent = `${integer(root.cycles)} cycles of ${integer(this.count)} warp${this.count === 1 ? "" : "s"}; ${(100 * outside).toFixed(1)} % outside every region, from each warp's first mark to its last`;
    this.markSelected();
  }

  // Children that overlap each other, such as asynchronous work, share their parent's width.
  place(node, left, width, row) {
    const sum = node.children.reduce((total, child) => total + child.cycles, 0);
    const scale = width / Math.max(node.cycles, sum, 1);
    let at = left;
    for (const child of node.children) {
      const wide = child.cycles * scale;
      if (wide >= NARROWEST) {
        this.box(child, at, wide, row);
        this.place(child, at, wide, row + 1);
      }
      at += wide;
    }
  }

  box(node, left, width, row) {
    const region = this.panel.regions[node.region];
    const share = this.tree.root.cycles ? (100 * node.cycles) / this.tree.root.cycles : 0;
    const text = `${region.name}: ${share.toFixed(1)} % of warp time, ${integer(node.count)} spans, ${integer(node.cycles / node.count)} cycles on average`;
    const made = element("button", { type: "button", text: region.name, title: text, "aria-label": text, onclick: () => this.light(node), ondblclick: () => this.zoom(node) });
    made.addEventListener("keydown", (event) => event.key.toLowerCase() === "z" && this.zoom(node));
    Object.assign(made.style, { left: `${100 * left}%`, width: `${100 * width}%`, top: `${row * ROW}px`, background: region.colour, color: region.ink });
    this.boxes.set(node, made);
    this.plot.append(made);
    this.deepest = Math.max(this.deepest, row);
  }

  light(node) {
    const { nodes, nodeOf } = this.tree;
    const at = nodes.indexOf(node);
    this.panel.highlight((row) => nodeOf[row] === at);
    this.panel.selection.chooseRegion(node.region);
    this.mark(node);
  }

  markSelected() {
    const { selected } = this.panel.timeline;
    if (this.tree) this.mark(selected < 0 ? null : this.tree.nodes[this.tree.nodeOf[selected]]);
  }

  mark(node) {
    for (const [each, box] of this.boxes) box.classList.toggle("chosen", each === node);
  }
}
