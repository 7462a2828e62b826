// Heat maps: SMs or warps over time, and blocks as cells of their grid. All numbers come from the report.

import { element } from "./details.js";
import { duration, integer, preciseTime, tickLabel } from "./format.js";
import { packColour, blend } from "./raster.js";

const LEFT = 64;
const BOTTOM = 22;
// Cividis, which suits any colour vision.
const RAMP = ["#00224E", "#213D6B", "#4C556C", "#6C6E72", "#8D8979", "#B0A473", "#D4C35F", "#FEE838"];

export function ramp(share) {
  const at = Math.min(Math.max(share, 0), 1) * (RAMP.length - 1);
  const low = Math.min(Math.floor(at), RAMP.length - 2);
  return blend(packColour(RAMP[low]), packColour(RAMP[low + 1]), at - low);
}

// Clear the canvas at the screen's resolution, with coordinates in CSS pixels.
function cleared(canvas, theme) {
  const ratio = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = theme.surface;
  context.fillRect(0, 0, width, height);
  return context;
}

// The arrow keys move from cell to cell, which `tell` describes; Enter calls `act`.
function steer(canvas, rows, columns, tell, act) {
  const at = { row: 0, column: 0 };
  canvas.tabIndex = 0;
  canvas.addEventListener("focus", () => tell(at.row, at.column));
  canvas.addEventListener("keydown", (event) => {
    const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
    if (!step && !(event.key === "Enter" && act)) return;
    event.preventDefault();
    if (!step) return act(at.row, at.column);
    at.row = Math.min(Math.max(at.row + step[0], 0), rows - 1);
    at.column = Math.min(Math.max(at.column + step[1], 0), columns - 1);
    tell(at.row, at.column);
  });
}

export class OverTimeMap {
  constructor(root, map, columns, regions, goTo) {
    Object.assign(this, { map, regions, goTo, cells: columns.raw(map.column), mode: "" });
    const choices = [["region of most warps", ""], ...map.regions.map((code, at) => [this.name(code), String(at)])];
    const select = element("select", { "aria-label": "What to show", onchange: () => ((this.mode = select.value), this.draw()) });
    for (const [text, value] of choices) select.append(element("option", { text, value }));
    this.canvas = element("canvas", { class: "heat", role: "application", "aria-label": `${map.title}: ${map.labels.length} rows over ${duration(map.end - map.begin)}; arrow keys read its cells${goTo ? ", Enter goes there in the timeline" : ""}` });
    this.tip = element("p", { class: "tip", role: "status", text: " " });
    root.append(element("div", { class: "heat-head" }, element("h3", { text: map.title }), element("label", {}, "Show ", select)), this.canvas, this.tip);
    this.canvas.style.minHeight = `${Math.min(Math.max(map.labels.length * (map.labels.length > 40 ? 3 : map.labels.length > 8 ? 22 : 16), 60), 420) + BOTTOM}px`;
    this.canvas.addEventListener("pointermove", (event) => this.tell(this.cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => (this.tip.textContent = " "));
    steer(this.canvas, map.labels.length, map.bins, (row, bin) => this.tell({ row, bin }), goTo && ((row, bin) => this.jump({ row, bin })));
    if (goTo) {
      this.canvas.title = "Click to go there in the timeline";
      this.canvas.addEventListener("click", (event) => this.jump(this.cellAt(event)));
    }
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  name(code) {
    return code < 0 ? "other regions" : this.regions[code].name;
  }

  // The mean number of warps in a region, in one cell.
  value(at, row, bin) {
    const { labels, bins, peak } = this.map;
    return (this.cells[(at * labels.length + row) * bins + bin] / 255) * peak;
  }

  setTheme(theme) {
    this.theme = theme;
    this.draw();
  }

  draw() {
    const { canvas, map, theme } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!theme || !width) return;
    const image = new ImageData(map.bins, map.labels.length);
    const pixels = new Uint32Array(image.data.buffer);
    const back = packColour(theme.plot);
    const most = this.mode === "" ? 0 : this.largest(Number(this.mode));
    for (let row = 0; row < map.labels.length; row++) {
      for (let bin = 0; bin < map.bins; bin++) pixels[row * map.bins + bin] = this.mode === "" ? this.dominant(row, bin, back) : this.level(row, bin, most, back);
    }
    const small = new OffscreenCanvas(map.bins, map.labels.length);
    small.getContext("2d").putImageData(image, 0, 0);
    const context = cleared(canvas, theme);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, LEFT, 0, width - LEFT, height - BOTTOM);
    this.drawAxes(context, width, height, theme);
  }

  dominant(row, bin, back) {
    let best = -1;
    let [most, sum] = [0, 0];
    this.map.regions.forEach((_, at) => {
      const value = this.value(at, row, bin);
      sum += value;
      if (value > most) [best, most] = [at, value];
    });
    if (best < 0) return back;
    const code = this.map.regions[best];
    const colour = packColour(code < 0 ? "#808080" : this.regions[code].colour);
    return blend(back, colour, 0.25 + 0.75 * Math.min(sum / this.map.peak, 1));
  }

  largest(at) {
    let most = 0;
    for (let row = 0; row < this.map.labels.length; row++) for (let bin = 0; bin < this.map.bins; bin++) most = Math.max(most, this.value(at, row, bin));
    return most;
  }

  level(row, bin, most, back) {
    const value = this.value(Number(this.mode), row, bin);
    return value > 0 ? ramp(value / (most || 1)) : back;
  }

  drawAxes(context, width, height, theme) {
    const { labels, begin, end } = this.map;
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = theme.muted;
    context.textBaseline = "middle";
    const each = (height - BOTTOM) / labels.length;
    const step = Math.max(1, Math.ceil(14 / each));
    for (let row = 0; row < labels.length; row += step) context.fillText(labels[row].slice(-10), 4, Math.max((row + 0.5) * each, 6));
    const room = (parts) => 1.5 * parts * (context.measureText(tickLabel(end, (end - begin) / parts / 10, end)).width + 12);
    const parts = [4, 2].find((parts) => room(parts) <= width - LEFT) || 1; // the outer labels lie inside their ticks
    for (let at = 0; at <= parts; at++) {
      const x = LEFT + ((width - LEFT) * at) / parts;
      context.textAlign = at === parts ? "right" : at ? "center" : "left";
      context.fillText(tickLabel(begin + ((end - begin) * at) / parts, (end - begin) / parts / 10, end), x, height - BOTTOM / 2);
    }
    context.textAlign = "left";
    if (this.mode !== "") drawRamp(context, width, this.largest(Number(this.mode)), "warps", theme);
  }

  cellAt(event) {
    const { map, canvas } = this;
    const bin = Math.floor(((event.offsetX - LEFT) / (canvas.clientWidth - LEFT)) * map.bins);
    const row = Math.floor((event.offsetY / (canvas.clientHeight - BOTTOM)) * map.labels.length);
    return bin >= 0 && bin < map.bins && row >= 0 && row < map.labels.length ? { row, bin } : null;
  }

  tell(cell) {
    if (!cell) return (this.tip.textContent = " ");
    const { map } = this;
    const each = (map.end - map.begin) / map.bins;
    const parts = map.regions.map((code, at) => [this.name(code), this.value(at, cell.row, cell.bin)]).filter(([, value]) => value > 0.005);
    parts.sort((a, b) => b[1] - a[1]);
    const what = parts.slice(0, 4).map(([name, value]) => `${name} ${value.toFixed(2)}`).join(", ") || "idle";
    return (this.tip.textContent = `${map.labels[cell.row]}, ${preciseTime(map.begin + cell.bin * each)} to ${preciseTime(map.begin + (cell.bin + 1) * each)}: mean warps in ${what}`);
  }

  jump(cell) {
    if (!cell) return;
    const { map } = this;
    const each = (map.end - map.begin) / map.bins;
    this.goTo(map.labels[cell.row], map.begin + (cell.bin - 3) * each, map.begin + (cell.bin + 4) * each);
  }
}

// One cell per block, or per group of blocks where there are very many, arranged like the grid.
export class BlockMap {
  constructor(root, map, columns, regions) {
    Object.assign(this, { map, regions, values: columns.floats(map.column) });
    const select = element("select", { "aria-label": "Region", onchange: () => ((this.at = Number(select.value)), this.draw()) });
    map.regions.forEach((code, at) => select.append(element("option", { text: regions[code].name, value: String(at) })));
    this.at = 0;
    this.canvas = element("canvas", { class: "heat", role: "application", "aria-label": `${map.title}; arrow keys read its cells` });
    this.tip = element("p", { class: "tip", role: "status", text: " " });
    root.append(element("div", { class: "heat-head" }, element("h3", { text: map.title }), element("label", {}, "Region ", select)), this.canvas, this.tip);
    this.rows = Math.ceil(map.cells / map.across);
    this.canvas.style.minHeight = `${Math.min(Math.max(this.rows * 14, 70), 360) + BOTTOM}px`;
    this.canvas.addEventListener("pointermove", (event) => this.hover(event));
    this.canvas.addEventListener("pointerleave", () => (this.tip.textContent = " "));
    steer(this.canvas, this.rows, map.across, (y, x) => this.tell(x, y));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
  }

  value(cell) {
    return this.values[cell * this.map.regions.length + this.at];
  }

  setTheme(theme) {
    this.theme = theme;
    this.draw();
  }

  draw() {
    const { canvas, map, theme } = this;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    if (!theme || !width) return;
    const context = cleared(canvas, theme);
    let [low, high] = [Infinity, -Infinity];
    for (let cell = 0; cell < map.cells; cell++) {
      const value = this.value(cell);
      if (value === value) [low, high] = [Math.min(low, value), Math.max(high, value)];
    }
    const image = new ImageData(map.across, this.rows);
    const pixels = new Uint32Array(image.data.buffer);
    for (let cell = 0; cell < map.cells; cell++) {
      const value = this.value(cell);
      pixels[cell] = value === value ? ramp(high > low ? (value - low) / (high - low) : 0.5) : packColour(theme.plot);
    }
    const small = new OffscreenCanvas(map.across, this.rows);
    small.getContext("2d").putImageData(image, 0, 0);
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, width, height - BOTTOM);
    if (high >= low) drawRamp(context, width, high, "cycles", theme, low, height - BOTTOM + 5);
  }

  hover(event) {
    const { map, canvas } = this;
    const x = Math.floor((event.offsetX / canvas.clientWidth) * map.across);
    const y = Math.floor((event.offsetY / (canvas.clientHeight - BOTTOM)) * this.rows);
    return this.tell(x, y);
  }

  tell(x, y) {
    const { map } = this;
    const cell = y * map.across + x;
    if (x < 0 || y < 0 || x >= map.across || cell >= map.cells) return (this.tip.textContent = " ");
    const first = cell * map.each;
    const name = map.each > 1 ? `blocks ${first} to ${first + map.each - 1}` : `block ${first}`;
    const value = this.value(cell);
    return (this.tip.textContent = `${name}: ${this.regions[map.regions[this.at]].name} ${value === value ? `${integer(value)} cycles on average` : "not entered"}`);
  }
}

function drawRamp(context, width, most, unit, theme, least = 0, top = 0) {
  const [x, wide, y] = [width - 230, 90, top || 4];
  if (!top) {
    context.fillStyle = theme.surface;
    context.fillRect(x - 70, y - 2, 298, 16);
  }
  for (let at = 0; at < wide; at++) {
    const colour = ramp(at / wide);
    context.fillStyle = `rgb(${colour & 255} ${(colour >> 8) & 255} ${(colour >> 16) & 255})`;
    context.fillRect(x + at, y, 1.5, 11);
  }
  context.fillStyle = theme.muted;
  context.font = "11px system-ui, sans-serif";
  context.textBaseline = "middle";
  const number = (value) => ((value < 100 || most - least < 10) && value % 1 ? value.toFixed(2) : integer(value));
  context.textAlign = "right";
  context.fillText(number(least), x - 6, y + 6);
  context.textAlign = "left";
  context.fillText(`${number(most)} ${unit}`, x + wide + 6, y + 6);
}
