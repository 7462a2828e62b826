// Drawn over the painted rows: ruler, row names, names inside spans, marks, selection, measurement.

import { drawArrows } from "./arrows.js";
import { duration, integer, preciseTime, tickLabel, tickStep } from "./format.js";
import { GUTTER, RULER } from "./geometry.js";
import { SPAN } from "./trace.js";

const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, sans-serif";
const widths = new Map();

export function drawOverlay(timeline, context) {
  const { width, height, theme } = timeline;
  context.textBaseline = "middle";
  context.save();
  context.beginPath();
  context.rect(GUTTER, RULER, width - GUTTER, height - RULER);
  context.clip();
  for (const row of visibleRows(timeline)) drawRow(timeline, context, row);
  if (timeline.critical) drawCritical(timeline, context);
  drawBox(timeline, context, timeline.hovered, theme.text, 1);
  drawBox(timeline, context, timeline.selected, theme.text, 2.5);
  drawArrows(timeline, context);
  if (timeline.measure) drawMeasure(timeline, context);
  context.restore();
  drawGutter(timeline, context);
  drawRuler(timeline, context);
  drawScrollbar(timeline, context);
}

function* visibleRows(timeline) {
  for (const row of timeline.layout.rows) {
    if (row.top - timeline.scroll > timeline.plotHeight) return;
    if (row.top + row.height >= timeline.scroll) yield row;
  }
}

function* ticks(timeline) {
  const step = tickStep(timeline.perPixel);
  for (let time = Math.ceil(timeline.begin / step) * step; time <= timeline.end; time += step) yield [time, step];
}

function drawRow(timeline, context, row) {
  const { trace, layout, theme } = timeline;
  const top = RULER + row.top - timeline.scroll;
  if (row.level === 0 && timeline.density !== "compact") {
    context.fillStyle = theme.grid;
    context.fillRect(GUTTER, Math.round(top), timeline.width, 1);
  }
  if (row.node.kind !== "warp") return;
  const track = row.tracks[0];
  const { nested } = timeline;
  context.font = `${layout.label}px ${FONT}`;
  for (let line = nested.lineOf[track]; line < nested.lineOf[track + 1]; line++) {
    const y = top + row.pad + (line - nested.lineOf[track]) * layout.lane;
    drawNames(timeline, context, nested, line, y);
  }
  drawPoints(timeline, context, track, top + row.pad);
  if (trace.tracks.begin[track] > timeline.end || trace.tracks.end[track] < timeline.begin) drawElsewhere(timeline, context, track, top, row);
}

// A span that is wide enough shows its name, and a hairline separates it from its neighbour.
function drawNames(timeline, context, runs, line, y) {
  const { trace, layout, regions, theme } = timeline;
  const stop = runs.first[line + 1];
  const least = 5 * timeline.perPixel;
  for (let i = runs.seek(line, timeline.begin); i < stop && runs.begin[i] < timeline.end; i++) {
    if (runs.end[i] - runs.begin[i] < least) continue;
    const row = runs.row[i];
    const left = Math.max(timeline.xOf(runs.begin[i]), GUTTER);
    const right = Math.min(timeline.xOf(runs.end[i]), timeline.width);
    context.fillStyle = theme.plot;
    context.fillRect(Math.round(right) - 1, y, 1, layout.lane - 2);
    if (right - left < 22 || layout.lane < 12) continue;
    const region = regions[trace.region[row]];
    const faded = timeline.match && !timeline.match[row];
    context.fillStyle = faded ? theme.muted : region.ink;
    const text = shortened(context, region.name, right - left - 8, layout.label);
    if (text) context.fillText(text, left + 4, y + (layout.lane - 2) / 2 + 0.5);
    if (trace.open.has(row)) drawTorn(context, right, y, layout.lane - 2, theme);
  }
}

// The end of an open span was not recorded: its right edge is drawn jagged.
function drawTorn(context, x, y, height, theme) {
  context.fillStyle = theme.plot;
  for (let at = 0; at < height; at += 4) {
    context.beginPath();
    context.moveTo(x + 1, y + at);
    context.lineTo(x - 4, y + at + 2);
    context.lineTo(x + 1, y + at + 4);
    context.fill();
  }
}

function drawPoints(timeline, context, track, top) {
  const { trace, layout, regions, theme } = timeline;
  let last = -10;
  for (let i = trace.tracks.first[track]; i < trace.tracks.first[track + 1]; i++) {
    if (trace.start[i] > timeline.end) break;
    if (trace.barriers.has(i) && !trace.releases.has(i)) continue; // the span around it shows the wait
    if ((trace.kind[i] === SPAN && trace.dur[i] > 0) || trace.start[i] < timeline.begin || !timeline.shown[trace.region[i]]) continue;
    const x = timeline.xOf(trace.start[i]);
    if (x - last < 3) continue;
    last = x;
    const y = top + trace.lane[i] * layout.lane + (layout.lane - 2) / 2;
    const size = Math.min(5, layout.lane / 3);
    context.beginPath();
    if (trace.kind[i] === 2) context.arc(x, y, size - 0.5, 0, 7);
    else {
      context.moveTo(x, y - size);
      context.lineTo(x + size, y);
      context.lineTo(x, y + size);
      context.lineTo(x - size, y);
      context.closePath();
    }
    context.fillStyle = regions[trace.region[i]].colour;
    context.fill();
    context.strokeStyle = theme.text;
    context.lineWidth = 1;
    context.stroke();
  }
}

function drawElsewhere(timeline, context, track, top, row) {
  const before = timeline.trace.tracks.end[track] < timeline.begin;
  context.fillStyle = timeline.theme.muted;
  context.textAlign = before ? "left" : "right";
  context.fillText(before ? "◂ earlier" : "later ▸", before ? GUTTER + 6 : timeline.width - 14, top + row.height / 2);
  context.textAlign = "left";
}

function drawBox(timeline, context, row, colour, weight) {
  if (row < 0) return;
  const box = timeline.boxOf(row);
  if (!box) return;
  const left = Math.max(box.left, GUTTER - 4);
  const right = Math.min(box.right, timeline.width + 4);
  context.strokeStyle = colour;
  context.lineWidth = weight;
  context.strokeRect(left - 0.5, box.top - 0.5, Math.max(right - left, 3) + 1, box.height + 1);
}

function drawCritical(timeline, context) {
  context.strokeStyle = timeline.theme.critical;
  context.lineWidth = 2;
  let last = null;
  for (const { track, begin, end } of timeline.critical) {
    const box = end >= timeline.begin && begin <= timeline.end ? timeline.boxOfTrack(track) : null;
    if (!box) {
      last = null;
      continue;
    }
    const [left, right] = [timeline.xOf(begin), timeline.xOf(end)];
    const middle = box.top + box.height / 2;
    context.strokeRect(left, box.top, Math.max(right - left, 1.5), box.height);
    if (last && last.y !== middle) {
      context.beginPath();
      context.moveTo(last.x, last.y);
      context.lineTo(left, middle);
      context.stroke();
    }
    last = { x: right, y: middle };
  }
}

function drawMeasure(timeline, context) {
  const { from, to } = timeline.measure;
  const { theme } = timeline;
  const [a, b] = [timeline.xOf(Math.min(from, to)), timeline.xOf(Math.max(from, to))];
  context.fillStyle = theme.select;
  context.fillRect(a, RULER, b - a, timeline.height);
  context.strokeStyle = theme.accent;
  context.lineWidth = 1.5;
  for (const x of [a, b]) {
    context.beginPath();
    context.moveTo(x, RULER);
    context.lineTo(x, timeline.height);
    context.stroke();
  }
  const text = measureText(timeline);
  context.font = `600 12px ${FONT}`;
  const wide = context.measureText(text).width + 16;
  const x = Math.min(Math.max((a + b) / 2 - wide / 2, GUTTER + 4), timeline.width - wide - 12);
  context.fillStyle = theme.accent;
  context.beginPath();
  context.roundRect(x, RULER + 8, wide, 22, 5);
  context.fill();
  context.fillStyle = theme.onAccent;
  context.fillText(text, x + 8, RULER + 19.5);
}

// Cycles are exact if both ends are edges of spans on one SM, which has one clock; otherwise the mean rate is used.
export function measureText(timeline) {
  const { from, to, fromCycle, toCycle, fromSm, toSm } = timeline.measure;
  const ns = Math.abs(to - from);
  if (fromCycle !== undefined && toCycle !== undefined && fromSm === toSm) {
    return `${preciseTime(ns)} · ${integer(Math.abs(toCycle - fromCycle))} cycles`;
  }
  const mhz = timeline.info.clock.mhz_mean;
  return mhz ? `${preciseTime(ns)} · ≈ ${integer((ns * mhz) / 1000)} cycles` : preciseTime(ns);
}

function drawGutter(timeline, context) {
  const { theme, height, layout } = timeline;
  context.fillStyle = theme.surface;
  context.fillRect(0, RULER, GUTTER, height);
  context.save();
  context.beginPath();
  context.rect(0, RULER, GUTTER, height - RULER);
  context.clip();
  const compact = timeline.density === "compact";
  let lastBottom = -100;
  for (const row of visibleRows(timeline)) {
    const top = RULER + row.top - timeline.scroll;
    const middle = top + (row.node.kind === "warp" ? Math.min(row.height, layout.lane + 4) : row.height) / 2;
    if (row.level === 0 && !compact) {
      context.fillStyle = theme.grid;
      context.fillRect(0, Math.round(top), GUTTER, 1);
    }
    if (timeline.picked.has(row.node)) {
      context.fillStyle = theme.select;
      context.fillRect(0, top, GUTTER, row.height);
    }
    if (middle - lastBottom < 11) continue;
    lastBottom = middle;
    const indent = 10 + row.level * 14;
    if (row.node.children.length) drawTriangle(context, indent, middle, row.node.open, theme.muted);
    context.font = `${row.level === 0 ? 600 : 400} ${compact ? 10 : 12}px ${FONT}`;
    context.fillStyle = row.level === 0 ? theme.text : theme.muted;
    const name = shortened(context, row.node.label, GUTTER - indent - (row.node.kind === "sm" ? 68 : 20), compact ? 10 : 12);
    context.fillText(name, indent + 12, middle);
    if (row.node.kind === "sm" && !compact) {
      context.font = `11px ${FONT}`;
      context.fillStyle = theme.muted;
      context.textAlign = "right";
      const blocks = row.node.children.filter((block) => block.tracks.some((track) => timeline.keeps(track))).length;
      context.fillText(`${blocks} block${blocks === 1 ? "" : "s"}`, GUTTER - 8, middle);
      context.textAlign = "left";
    }
  }
  context.restore();
  context.fillStyle = theme.line;
  context.fillRect(GUTTER - 1, RULER, 1, height);
}

function drawTriangle(context, x, y, open, colour) {
  context.fillStyle = colour;
  context.beginPath();
  if (open) {
    context.moveTo(x - 1, y - 3);
    context.lineTo(x + 7, y - 3);
    context.lineTo(x + 3, y + 3);
  } else {
    context.moveTo(x, y - 4);
    context.lineTo(x + 6, y);
    context.lineTo(x, y + 4);
  }
  context.fill();
}

function drawRuler(timeline, context) {
  const { theme, width } = timeline;
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, width, RULER);
  context.fillStyle = theme.line;
  context.fillRect(0, RULER - 1, width, 1);
  context.save();
  context.beginPath();
  context.rect(GUTTER, 0, width - GUTTER, RULER);
  context.clip();
  context.font = `11px ${FONT}`;
  for (const [time, step] of ticks(timeline)) {
    const x = Math.round(timeline.xOf(time));
    context.fillStyle = theme.line;
    context.fillRect(x, RULER - 7, 1, 6);
    context.fillStyle = theme.muted;
    context.fillText(tickLabel(time, step, Math.abs(timeline.trace.end)), x + 5, RULER / 2);
  }
  if (timeline.cursor) {
    context.fillStyle = theme.accent;
    context.fillRect(Math.round(timeline.xOf(timeline.cursor.time)), 0, 1, RULER);
  }
  context.restore();
  context.font = `11px ${FONT}`;
  context.fillStyle = theme.muted;
  context.fillText(`${duration(timeline.end - timeline.begin)} shown`, 10, RULER / 2);
}

function drawScrollbar(timeline, context) {
  const { layout, plotHeight, width, theme } = timeline;
  if (layout.height <= plotHeight) return;
  const size = Math.max((plotHeight / layout.height) * plotHeight, 24);
  const at = (timeline.scroll / (layout.height - plotHeight)) * (plotHeight - size);
  context.fillStyle = theme.thumb;
  context.beginPath();
  context.roundRect(width - 9, RULER + at + 2, 6, size - 4, 3);
  context.fill();
}

function shortened(context, text, room, size) {
  const key = `${size}/${text}`;
  let full = widths.get(key);
  if (full === undefined) widths.set(key, (full = context.measureText(text).width));
  if (full <= room) return text;
  const kept = Math.floor((text.length * (room - size * 0.8)) / full);
  return kept >= 2 ? `${text.slice(0, kept)}…` : "";
}
