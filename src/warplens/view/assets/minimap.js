// An overview of the whole trace: how many warps are in which region, and the window that the timeline shows.

import { GUTTER } from "./geometry.js";

export class Minimap {
  constructor(canvas, timeline, columns, info, regions) {
    Object.assign(this, { canvas, timeline, info, regions, context: canvas.getContext("2d") });
    this.share = columns.raw("minimap"); // [region, bin], relative to the largest number of active warps
    timeline.addEventListener("change", () => this.draw());
    new ResizeObserver(() => this.resize()).observe(canvas);
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", () => (this.grip = null));
  }

  // Show the overview of a newer trace of the same program.
  replace(columns, info, regions) {
    Object.assign(this, { info, regions, share: columns.raw("minimap"), picture: null });
  }

  resize() {
    const ratio = window.devicePixelRatio || 1;
    this.width = this.canvas.clientWidth;
    this.height = this.canvas.clientHeight;
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    this.picture = null;
    this.draw();
  }

  timeAt(x) {
    const { trace } = this.timeline;
    return trace.begin + ((x - GUTTER) / (this.width - GUTTER)) * (trace.end - trace.begin);
  }

  xOf(time) {
    const { trace } = this.timeline;
    return GUTTER + ((time - trace.begin) / (trace.end - trace.begin)) * (this.width - GUTTER);
  }

  press(event) {
    const x = event.offsetX;
    const { begin, end } = this.timeline;
    const [left, right] = [this.xOf(begin), this.xOf(end)];
    this.canvas.setPointerCapture(event.pointerId);
    if (Math.abs(x - left) < 6) this.grip = { edge: "begin" };
    else if (Math.abs(x - right) < 6) this.grip = { edge: "end" };
    else {
      if (x < left || x > right) this.centre(this.timeAt(x));
      this.grip = { offset: this.timeAt(x) - this.timeline.begin };
    }
  }

  move(event) {
    if (!this.grip) return;
    const time = this.timeAt(event.offsetX);
    const { begin, end } = this.timeline;
    if (this.grip.edge === "begin") this.timeline.setWindow(Math.min(time, end - 4), end);
    else if (this.grip.edge === "end") this.timeline.setWindow(begin, Math.max(time, begin + 4));
    else this.timeline.setWindow(time - this.grip.offset, time - this.grip.offset + (end - begin));
  }

  centre(time) {
    const half = (this.timeline.end - this.timeline.begin) / 2;
    this.timeline.setWindow(time - half, time + half);
  }

  draw() {
    const { theme } = this.timeline;
    if (!theme || !this.width) return;
    if (this.drawnFor !== theme || !this.picture) this.paint(theme);
    const { context, width, height } = this;
    context.drawImage(this.picture, 0, 0, width, height);
    const [left, right] = [Math.max(this.xOf(this.timeline.begin), GUTTER), Math.min(this.xOf(this.timeline.end), width)];
    context.fillStyle = theme.veil;
    context.fillRect(GUTTER, 0, left - GUTTER, height);
    context.fillRect(right, 0, width - right, height);
    context.strokeStyle = theme.accent;
    context.lineWidth = 1.5;
    context.strokeRect(left + 0.75, 0.75, Math.max(right - left - 1.5, 2), height - 1.5);
  }

  // The stacked shares change only with size and theme, so they are cached.
  paint(theme) {
    const ratio = window.devicePixelRatio || 1;
    this.picture = new OffscreenCanvas(Math.max(this.canvas.width, 1), Math.max(this.canvas.height, 1));
    this.drawnFor = theme;
    const context = this.picture.getContext("2d");
    context.scale(ratio, ratio);
    context.fillStyle = theme.surface;
    context.fillRect(0, 0, this.width, this.height);
    context.fillStyle = theme.plot;
    context.fillRect(GUTTER, 0, this.width - GUTTER, this.height);
    const bins = this.info.minimap.bins;
    const each = (this.width - GUTTER) / bins;
    for (let bin = 0; bin < bins; bin++) {
      let y = this.height;
      this.info.minimap.regions.forEach((code, at) => {
        const high = (this.share[at * bins + bin] / 255) * (this.height - 4);
        context.fillStyle = code < 0 ? theme.muted : this.regions[code].colour;
        context.fillRect(GUTTER + bin * each, y - high, each + 0.5, high);
        y -= high;
      });
    }
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = theme.muted;
    context.textBaseline = "middle";
    context.fillText("warps at work", 10, this.height / 2);
  }
}
