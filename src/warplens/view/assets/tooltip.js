// What is under the pointer, said beside it.

import { element } from "./details.js";
import { duration, integer, preciseTime } from "./format.js";

const APART = 14; // pixels from the pointer

export class Tooltip {
  constructor(box, timeline) {
    Object.assign(this, { box, timeline, root: element("div", { class: "tooltip", "aria-hidden": "true", hidden: "" }) });
    box.append(this.root);
  }

  update() {
    const { hovered: row, cursor } = this.timeline;
    this.root.hidden = row < 0 || !cursor;
    if (this.root.hidden) return;
    if (this.row !== row) this.fill(row);
    this.row = row;
    const [wide, high] = [this.root.offsetWidth, this.root.offsetHeight];
    const [x, y] = [cursor.x + APART, cursor.y + APART];
    this.root.style.left = `${Math.max(x + wide > this.box.clientWidth ? cursor.x - wide - APART : x, 0)}px`;
    this.root.style.top = `${Math.max(y + high > this.box.clientHeight ? cursor.y - high - APART : y, 0)}px`;
  }

  fill(row) {
    const { trace, regions } = this.timeline;
    const { tracks } = trace;
    const track = trace.track[row];
    const region = regions[trace.region[row]];
    const swatch = element("span", { class: "swatch" });
    swatch.style.background = region.colour;
    const value = trace.value.has(row) && !trace.barriers.has(row) ? ` = ${trace.value.get(row)}` : "";
    const length = trace.kind[row] ? "" : `${integer(trace.cycles[row])} cycles · ${duration(trace.dur[row])}${trace.open.has(row) ? " (open)" : ""}`;
    this.root.replaceChildren(
      element("strong", {}, swatch, ` ${region.name}${value}`),
      ...(length ? [element("span", { text: length })] : []),
      element("span", { text: `SM ${tracks.sm[track]} · block ${tracks.block[track]} · warp ${tracks.warp[track]}` }),
      element("span", { text: `from ${preciseTime(trace.start[row])}` }),
    );
  }
}
