// The timeline of one trace: its state (time window, open rows, filters, selection), and drawing one frame.

import { tickStep } from "./format.js";
import { GUTTER, RULER } from "./geometry.js";
import { drawOverlay } from "./overlay.js";
import { blend, packColour, Painter } from "./raster.js";
import { RowTree, rowOfTrack } from "./rows.js";
import { innermostRuns, nestedRuns } from "./runs.js";
import { SPAN } from "./trace.js";

const SHORTEST_VIEW = 4; // ns
const OVERLAY_ONLY = new Set(["hover", "select", "pick", "measure", "critical"]); // changes that do not affect the painted rows
const MOVING = new Set(["window", "scroll"]);
const SETTLE_MS = 140;
const [SLOW_MS, QUICK_MS] = [20, 7];

export class Timeline extends EventTarget {
  constructor(canvas, trace, info, regions) {
    super();
    this.canvas = canvas;
    this.context = canvas.getContext("2d", { alpha: false });
    this.trace = trace;
    this.info = info;
    this.regions = regions;
    this.tree = new RowTree(trace, info);
    this.tree.openFirst();
    this.painter = new Painter(regions.length);
    this.begin = trace.begin;
    this.end = trace.end;
    this.scroll = 0;
    this.width = this.height = 0;
    this.density = "normal";
    this.shown = new Uint8Array(regions.length).fill(1);
    this.roles = null;
    this.sms = null;
    this.launch = null;
    this.match = null;
    this.selected = -1;
    this.hovered = -1;
    this.measure = null;
    this.picked = new Set(); // rows that are selected for their statistics
    this.critical = null;
    this.cursor = null;
    this.frameTimes = [];
    this.stride = 1; // while moving, every stride-th warp is painted; see keepUp()
    this.moving = false;
    this.stale = true;
    this.fit();
    this.relayout();
    new ResizeObserver(() => this.resize()).observe(canvas);
  }

  // Show a newer trace of the same program: what is open stays open, and the window stays where it is.
  replaceTrace(trace, info, regions) {
    const tree = new RowTree(trace, info);
    if (this.tree.roots.length) tree.openAs(this.tree);
    else tree.openFirst();
    const shown = Uint8Array.from(regions, (_, code) => this.shown[code] ?? 1);
    Object.assign(this, { trace, info, regions, tree, shown, nested: null, innermost: null, match: null, selected: -1, hovered: -1, measure: null });
    this.picked.clear();
    this.painter = new Painter(regions.length);
    this.relayout();
    if (this.theme) this.setTheme(this.theme);
  }

  // ---- state --------------------------------------------------------------------------------------------------

  get plotWidth() {
    return Math.max(this.width - GUTTER, 1);
  }

  get plotHeight() {
    return Math.max(this.height - RULER, 1);
  }

  get perPixel() {
    return (this.end - this.begin) / this.plotWidth;
  }

  timeAt(x) {
    return this.begin + (x - GUTTER) * this.perPixel;
  }

  xOf(time) {
    return GUTTER + (time - this.begin) / this.perPixel;
  }

  setWindow(begin, end) {
    const { trace } = this;
    const margin = (trace.end - trace.begin) * 0.02 + 1;
    const [low, high] = [trace.begin - margin, trace.end + margin];
    const length = Math.min(Math.max(end - begin, SHORTEST_VIEW), high - low);
    const from = Math.min(Math.max(begin, low), high - length);
    this.begin = from;
    this.end = from + length;
    this.dropHiddenMeasure();
    this.changed("window");
  }

  // A measurement that is off-screen cannot be seen or cleared there, so it ends.
  dropHiddenMeasure() {
    if (!this.measure) return;
    const { from, to } = this.measure;
    if (Math.max(from, to) >= this.begin && Math.min(from, to) <= this.end) return;
    this.measure = null;
    this.changed("measure");
  }

  zoom(factor, around = (this.begin + this.end) / 2) {
    const length = (this.end - this.begin) * factor;
    const share = (around - this.begin) / (this.end - this.begin);
    const wanted = Math.max(length, SHORTEST_VIEW);
    this.setWindow(around - share * wanted, around + (1 - share) * wanted);
  }

  pan(pixels) {
    this.setWindow(this.begin + pixels * this.perPixel, this.end + pixels * this.perPixel);
  }

  fit() {
    const { begin, end } = this.launch ? { begin: this.launch.begin_ns, end: this.launch.end_ns } : this.trace;
    const margin = (end - begin) * 0.01;
    this.setWindow(begin - margin, end + margin);
  }

  scrollBy(pixels) {
    const before = this.scroll;
    this.scroll = Math.min(Math.max(this.scroll + pixels, 0), Math.max(this.layout.height - this.plotHeight, 0));
    this.changed("scroll");
    return this.scroll !== before;
  }

  relayout() {
    this.nested ??= nestedRuns(this.trace, this.shown);
    this.innermost ??= innermostRuns(this.trace, this.shown);
    const { lineOf } = this.nested;
    this.layout = this.tree.layout(this.density, (t) => this.keeps(t), (t) => lineOf[t + 1] - lineOf[t]);
    this.scrollBy(0);
    this.changed("layout");
  }

  keeps(track) {
    const { tracks } = this.trace;
    return (
      (!this.roles || this.roles.has(tracks.role[track])) &&
      (!this.sms || this.sms.has(tracks.sm[track])) &&
      (!this.launch || (tracks.launch[track] === this.launch.launch && tracks.rank[track] === this.launch.rank))
    );
  }

  setFilter({ regions, roles, sms, launch }) {
    if (regions !== undefined) {
      this.shown = Uint8Array.from(this.regions, (_, code) => (!regions || regions.has(code) ? 1 : 0));
      this.nested = this.innermost = null;
    }
    if (roles !== undefined) this.roles = roles;
    if (sms !== undefined) this.sms = sms;
    if (launch !== undefined) this.launch = launch;
    this.tree.forgetSlots();
    this.relayout();
    if (launch !== undefined) this.fit();
    this.changed("filter");
  }

  // Spans that pass every filter, whether or not they are on screen.
  countShown() {
    const { trace } = this;
    const keep = Uint8Array.from({ length: trace.tracks.count }, (_, t) => (this.keeps(t) ? 1 : 0));
    let count = 0;
    for (let i = 0; i < trace.count; i++) if (keep[trace.track[i]] && this.shown[trace.region[i]]) count++;
    return count;
  }

  // Blocks that pass the filters, and all blocks.
  countBlocks() {
    const blocks = this.tree.roots.flatMap((sm) => sm.children);
    return [blocks.filter((block) => block.tracks.some((track) => this.keeps(track))).length, blocks.length];
  }

  // Select rows for their statistics: this one alone, or with `add` besides the others; again to end it.
  pick(node, add, on = !this.picked.has(node)) {
    if (!add) this.picked.clear();
    if (on) this.picked.add(node);
    else this.picked.delete(node);
    this.changed("pick");
  }

  // Open the block of a track and scroll its SM to the top.
  openTrack(track) {
    const { parent: block } = this.tree.leaf[track];
    block.open = block.parent.open = true;
    this.relayout();
    const row = this.layout.rowOf.get(block);
    const sm = this.layout.rowOf.get(block.parent);
    if (row && sm) this.scrollBy((row.top - sm.top > this.plotHeight / 2 ? row.top - 40 : sm.top) - this.scroll);
  }

  toggle(node, open = !node.open) {
    node.open = open;
    this.relayout();
  }

  select(row) {
    this.selected = row;
    this.changed("select");
  }

  // Open, scroll and zoom to make a span visible; keep the zoom if the span is already clearly visible.
  reveal(row) {
    const { trace, tree } = this;
    const leaf = tree.leaf[trace.track[row]];
    leaf.parent.open = leaf.parent.parent.open = true;
    this.relayout();
    this.scrollToTrack(trace.track[row]);
    const [from, to] = [trace.start[row], trace.start[row] + trace.dur[row]];
    const wide = (to - from) / this.perPixel;
    if (wide < 12 || wide > this.plotWidth || from < this.begin || to > this.end) {
      const room = Math.max((to - from) * 4, SHORTEST_VIEW * 10);
      this.setWindow((from + to) / 2 - room, (from + to) / 2 + room);
    }
  }

  scrollToTrack(track) {
    const at = rowOfTrack(this.tree, this.layout, track);
    if (at && (at.top < this.scroll || at.top + at.height > this.scroll + this.plotHeight)) {
      this.scrollBy(at.top - this.plotHeight / 3 - this.scroll);
    }
  }

  // ---- hit testing --------------------------------------------------------------------------------------------

  rowAt(y) {
    const target = y - RULER + this.scroll;
    const { rows } = this.layout;
    let low = 0;
    let high = rows.length - 1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (rows[middle].top + rows[middle].height <= target) low = middle + 1;
      else if (rows[middle].top > target) high = middle - 1;
      else return rows[middle];
    }
    return null;
  }

  // The span under a point, or the nearest within a few pixels; -1 for none.
  spanAt(x, y) {
    const row = this.rowAt(y);
    if (!row || x < GUTTER) return -1;
    const inside = y - RULER + this.scroll - row.top - row.pad;
    const time = this.timeAt(x);
    if (row.node.kind === "warp") {
      const track = row.tracks[0];
      const point = this.pointNear(track, time);
      if (point >= 0) return point;
      const first = this.nested.lineOf[track];
      const line = Math.min(Math.max(Math.floor(inside / this.layout.lane), 0), this.nested.lineOf[track + 1] - first - 1);
      return this.runNear(this.nested, first + line, time);
    }
    const slots = this.tree.slots(row);
    const slot = slots[Math.min(Math.max(Math.floor((inside / (row.height - 2 * row.pad)) * slots.length), 0), slots.length - 1)];
    for (const track of slot) {
      const found = this.runNear(this.innermost, track, time);
      if (found >= 0) return found;
    }
    return -1;
  }

  runNear(runs, line, time) {
    const slack = 3 * this.perPixel;
    const at = runs.seek(line, time);
    const stop = runs.first[line + 1];
    if (at < stop && runs.begin[at] <= time) return runs.row[at];
    const before = at > runs.first[line] ? time - runs.end[at - 1] : Infinity;
    const after = at < stop ? runs.begin[at] - time : Infinity;
    if (Math.min(before, after) > slack) return -1;
    return before < after ? runs.row[at - 1] : runs.row[at];
  }

  pointNear(track, time) {
    const { trace } = this;
    const slack = 5 * this.perPixel;
    let best = -1;
    for (let i = lowerBound(trace.start, trace.tracks.first[track], trace.tracks.first[track + 1], time - slack); i < trace.tracks.first[track + 1]; i++) {
      if (trace.start[i] > time + slack) break;
      const point = trace.kind[i] !== SPAN || trace.dur[i] <= 0;
      if (point && this.shown[trace.region[i]] && (best < 0 || Math.abs(trace.start[i] - time) < Math.abs(trace.start[best] - time))) best = i;
    }
    return best;
  }

  // Where a span is drawn, in canvas pixels; null when its row is filtered out.
  boxOf(row) {
    const { trace } = this;
    const whole = this.boxOfTrack(trace.track[row]);
    if (!whole) return null;
    const [left, right] = [this.xOf(trace.start[row]), this.xOf(trace.start[row] + trace.dur[row])];
    if (!whole.lanes) return { ...whole, left, right };
    return { left, right, top: whole.top + trace.lane[row] * this.layout.lane, height: this.layout.lane - 2 };
  }

  // The full line of a warp: its own row, or its slot in its closed block or SM.
  boxOfTrack(track) {
    const at = rowOfTrack(this.tree, this.layout, track);
    if (!at) return null;
    const top = RULER + at.top - this.scroll + at.pad;
    if (at.node.kind === "warp") return { top, height: at.height - 5, lanes: true };
    const slots = this.tree.slots(at);
    const each = (at.height - 2 * at.pad) / slots.length;
    const slot = slots.findIndex((tracks) => tracks.includes(track));
    return { top: top + slot * each, height: Math.max(each, 2), lanes: false };
  }

  // ---- drawing -------------------------------------------------------------------------------------------------

  setTheme(theme) {
    this.theme = theme;
    const back = packColour(theme.plot);
    this.colours = Uint32Array.from(this.regions, (region) => packColour(region.colour));
    this.faded = this.colours.map((colour) => blend(back, colour, 0.16));
    this.changed("theme");
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth, clientHeight } = this.canvas;
    if (!clientWidth || !clientHeight) return;
    this.width = clientWidth;
    this.height = clientHeight;
    this.ratio = ratio;
    this.canvas.width = Math.round(clientWidth * ratio);
    this.canvas.height = Math.round(clientHeight * ratio);
    this.image = null;
    this.stale = true;
    this.scrollBy(0);
    this.draw(); // immediately: a resized canvas is blank until painted
  }

  changed(what) {
    this.dispatchEvent(new CustomEvent("change", { detail: what }));
    if (!OVERLAY_ONLY.has(what)) this.stale = true;
    if (MOVING.has(what)) this.move();
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => this.draw());
  }

  // Zooming and panning may skip warps to stay responsive; all are painted shortly after the last move.
  move() {
    this.moving = true;
    clearTimeout(this.settling);
    this.settling = setTimeout(() => {
      this.moving = false;
      if (this.painted !== 1) this.changed("settle");
    }, SETTLE_MS);
  }

  draw() {
    if (this.pending) cancelAnimationFrame(this.pending);
    this.pending = 0;
    if (!this.theme || !this.width) return;
    const began = performance.now();
    if (this.stale) this.paintRows();
    this.stale = false;
    this.context.putImageData(this.image, Math.round(GUTTER * this.ratio), Math.round(RULER * this.ratio));
    this.context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    drawOverlay(this, this.context);
    this.keepUp(performance.now() - began);
  }

  keepUp(took) {
    this.frameTimes.push(took);
    if (this.frameTimes.length > 240) this.frameTimes.shift();
    if (took > SLOW_MS && this.stride === this.painted) this.stride = Math.min(this.stride * 2, 16);
    else if (took < QUICK_MS && this.moving && this.stride > 1) this.stride /= 2;
  }

  // Paint all regions as pixels.
  paintRows() {
    const { ratio } = this;
    const left = Math.round(GUTTER * ratio);
    const top = Math.round(RULER * ratio);
    const width = Math.max(this.canvas.width - left, 1);
    const height = Math.max(this.canvas.height - top, 1);
    this.painted = this.moving ? this.stride : 1;
    if (!this.image || this.image.width !== width || this.image.height !== height) {
      this.image = this.context.createImageData(width, height);
      this.pixels = new Uint32Array(this.image.data.buffer);
      this.stripe = new Uint32Array(width);
    }
    this.ruleBacks(width, ratio);
    this.fillRows(0, height, this.plain);
    const view = { begin: this.begin, perNs: width / (this.end - this.begin), width };
    for (const row of this.layout.rows) {
      if (row.top - this.scroll > this.plotHeight) break;
      if (row.top + row.height < this.scroll) continue;
      const back = row.level === 0 && row.node.open ? this.banded : this.plain;
      const y0 = (row.top - this.scroll) * ratio;
      if (back !== this.plain) this.fillRows(y0, y0 + row.height * ratio, back);
      this.paintRow(row, y0, view, back);
    }
  }

  paintRow(row, y0, view, back) {
    const { ratio, trace } = this;
    const padded = y0 + row.pad * ratio;
    if (row.node.kind === "warp") {
      const track = row.tracks[0];
      const { lineOf } = this.nested;
      for (let line = lineOf[track]; line < lineOf[track + 1]; line++) {
        this.stripe.set(back);
        this.painter.paint(this.stripe, view, this.nested, line, trace.region, this.colours, this.faded, this.match);
        const top = padded + (line - lineOf[track]) * this.layout.lane * ratio;
        this.copyStripe(top, top + (this.layout.lane - 2) * ratio);
      }
      return;
    }
    const slots = this.tree.slots(row);
    const room = Math.max(Math.round((row.height - 2 * row.pad - 0.5) * ratio), 1);
    const stripes = Math.min(slots.length, room);
    for (let s = 0; s < stripes; s += this.painted) {
      this.stripe.set(back);
      const next = Math.min(s + this.painted, stripes);
      const from = Math.floor((s * slots.length) / stripes);
      const to = this.painted > 1 ? from + 1 : Math.floor((next * slots.length) / stripes);
      for (let slot = from; slot < to; slot++) {
        for (const track of slots[slot]) {
          if (trace.tracks.end[track] < this.begin || trace.tracks.begin[track] > this.end) continue;
          this.painter.paint(this.stripe, view, this.innermost, track, trace.region, this.colours, this.faded, this.match);
        }
      }
      this.copyStripe(padded + (s * room) / stripes, padded + (next * room) / stripes);
    }
  }

  copyStripe(from, to) {
    const width = this.stripe.length;
    const last = Math.min(Math.round(to), this.image.height);
    for (let y = Math.max(Math.round(from), 0); y < last; y++) this.pixels.set(this.stripe, y * width);
  }

  fillRows(from, to, back) {
    const last = Math.min(Math.round(to), this.image.height);
    for (let y = Math.max(Math.round(from), 0); y < last; y++) this.pixels.set(back, y * back.length);
  }

  // One row of background with the grid lines of the axis, which thus run behind the spans.
  ruleBacks(width, ratio) {
    const grid = packColour(this.theme.grid);
    const step = tickStep(this.perPixel);
    [this.plain, this.banded] = [this.theme.plot, this.theme.band].map((colour) => new Uint32Array(width).fill(packColour(colour)));
    for (let time = Math.ceil(this.begin / step) * step; time <= this.end; time += step) {
      const x = Math.round((this.xOf(time) - GUTTER) * ratio);
      if (x >= 0 && x < width) this.plain[x] = this.banded[x] = grid;
    }
  }
}

function lowerBound(values, low, high, wanted) {
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] >= wanted) high = middle;
    else low = middle + 1;
  }
  return low;
}
