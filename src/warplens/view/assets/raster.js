// Painting runs into pixels. Each pixel takes the region that fills most of it, as strongly as it is filled, so that
// a million spans cost one pass over their begins and ends and nothing is ever drawn outside its own time.

const FAINTEST = 0.3; // a lone short span must stay visible

export class Painter {
  constructor(regions) {
    this.weight = new Float64Array(regions);
    this.touched = new Int32Array(regions);
  }

  // Paint the runs of one line into `out` (one colour per pixel). `view` is {begin, perNs, width}; `colours` and
  // `faded` hold a colour per region; `match[row]` picks between them when there is a search.
  paint(out, view, runs, line, region, colours, faded, match) {
    const { begin: origin, perNs, width } = view;
    const stop = runs.first[line + 1];
    let pixel = -1;
    let used = 0;
    let strongest = 0;
    const flush = () => {
      let best = -1;
      let most = 0;
      let sum = 0;
      for (let k = 0; k < used; k++) {
        const code = this.touched[k];
        const weight = this.weight[code];
        sum += weight;
        if (weight > most) [best, most] = [code, weight];
        this.weight[code] = 0;
      }
      if (best >= 0) out[pixel] = blend(out[pixel], strongest ? colours[best] : faded[best], Math.max(FAINTEST, Math.min(1, sum)));
      used = 0;
      strongest = 0;
    };
    const add = (at, code, amount, bright) => {
      if (at !== pixel) {
        if (used) flush();
        pixel = at;
      }
      if (this.weight[code] === 0) this.touched[used++] = code;
      this.weight[code] += amount;
      if (bright) strongest = 1;
    };
    for (let i = runs.seek(line, origin); i < stop; i++) {
      const left = (runs.begin[i] - origin) * perNs;
      if (left >= width) break;
      const right = Math.min((runs.end[i] - origin) * perNs, width);
      const x0 = left < 0 ? 0 : left;
      const row = runs.row[i];
      const code = region[row];
      const bright = !match || match[row] === 1;
      const p0 = Math.floor(x0);
      const p1 = Math.floor(right);
      if (p0 === p1) {
        add(p0, code, Math.max(right - x0, 1e-9), bright);
        continue;
      }
      if (p0 + 1 > x0) add(p0, code, p0 + 1 - x0, bright);
      if (p1 > p0 + 1) out.fill(bright ? colours[code] : faded[code], p0 + 1, p1);
      if (right > p1 && p1 < width) add(p1, code, right - p1, bright);
    }
    if (used) flush();
  }
}

// Both are 0xAABBGGRR, as a canvas keeps them on every machine a browser runs on.
export function blend(under, over, amount) {
  const keep = 1 - amount;
  const red = (under & 255) * keep + (over & 255) * amount;
  const green = ((under >> 8) & 255) * keep + ((over >> 8) & 255) * amount;
  const blue = ((under >> 16) & 255) * keep + ((over >> 16) & 255) * amount;
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}

export function packColour(text) {
  const [red, green, blue] = [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  return (0xff000000 | (blue << 16) | (green << 8) | red) >>> 0;
}
