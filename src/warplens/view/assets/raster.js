// Paint runs into pixels. Each pixel shows the region that fills most of it, with an opacity by how much is filled. A
// million spans take one pass over their begins and ends, and nothing is drawn outside its own time.

const FAINTEST = 0.3; // a single short span must stay visible

export class Painter {
  constructor(regions) {
    this.weight = new Float64Array(regions + 1);
    this.touched = new Int32Array(regions + 1);
  }

  // Paint the runs of one line into `out` (one colour per pixel). `view` is {begin, perNs, width}; `colours` and
  // `faded` hold a colour per region; `match[row]` picks between them when there is a search.
  // One long function on purpose: calls inside its loop would cost more than the work.
  paint(out, view, runs, line, region, colours, faded, match) {
    const { begin: origin, perNs, width } = view;
    const { weight, touched } = this;
    const { begin, end, row } = runs;
    const stop = runs.first[line + 1];
    let pixel = -1; // the pixel whose weights are being summed
    let used = 0;
    let bright = 1;
    for (let i = runs.seek(line, origin); i <= stop; i++) {
      let left = width;
      let right = width;
      let code = 0;
      let lit = 1;
      if (i < stop) {
        left = (begin[i] - origin) * perNs;
        right = (end[i] - origin) * perNs;
        if (left < 0) left = 0;
        if (right > width) right = width;
        code = region[row[i]];
        if (match !== null) lit = match[row[i]];
      }
      const p0 = left >= width ? width : left | 0;
      const p1 = right | 0;
      if (p0 !== pixel && used) {
        out[pixel] = mix(out[pixel], weight, touched, used, bright ? colours : faded);
        used = 0;
        bright = 0;
      }
      if (p0 >= width) return;
      pixel = p0;
      if (!used) bright = 0;
      if (weight[code] === 0) touched[used++] = code;
      weight[code] += (p1 > p0 ? p0 + 1 : right) - left + 1e-9;
      bright |= lit;
      if (p1 === p0) continue;
      out[p0] = mix(out[p0], weight, touched, used, bright ? colours : faded);
      const colour = lit ? colours[code] : faded[code];
      for (let p = p0 + 1; p < p1; p++) out[p] = colour;
      used = 0;
      pixel = p1;
      bright = lit;
      if (p1 < width && right > p1) {
        touched[used++] = code;
        weight[code] = right - p1;
      }
    }
  }
}

// The colour of one pixel, given how much of it each region fills; resets the weights.
function mix(under, weight, touched, used, colours) {
  let best = touched[0];
  let most = weight[best];
  let sum = most;
  weight[best] = 0;
  for (let k = 1; k < used; k++) {
    const code = touched[k];
    const amount = weight[code];
    weight[code] = 0;
    sum += amount;
    if (amount > most) {
      most = amount;
      best = code;
    }
  }
  return sum > 0.98 ? colours[best] : blend(under, colours[best], sum < FAINTEST ? FAINTEST : sum);
}

// Colours are 0xAABBGGRR, the layout of a canvas on little-endian machines.
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
