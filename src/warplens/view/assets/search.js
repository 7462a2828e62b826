// Search: words match region names; sm:3, block:5, warp:0, launch:1, role:… and dur>500 (cycles) narrow it down.

const FIELDS = ["sm", "block", "warp", "launch", "rank", "device"];

// A predicate on rows, or null for an empty query. Throws if the query is invalid.
export function compileQuery(text, trace, regions) {
  const tests = [];
  for (const word of text.trim().toLowerCase().split(/\s+/).filter(Boolean)) {
    const field = /^([a-z]+):(\d+)(?:-(\d+))?$/.exec(word);
    const length = /^(dur|ns|value)(<=|>=|<|>|=)([\d.e+-]+)$/.exec(word);
    if (field && FIELDS.includes(field[1])) {
      const [low, high] = [Number(field[2]), Number(field[3] ?? field[2])];
      const column = trace.tracks[field[1]];
      tests.push((row) => column[trace.track[row]] >= low && column[trace.track[row]] <= high);
    } else if (length) {
      tests.push(comparison(trace, length[1], length[2], Number(length[3])));
    } else if (/^[a-z]+[:<>]/.test(word) && !regions.some((region) => region.name.toLowerCase().includes(word))) {
      throw new Error(`"${word}": use ${FIELDS.map((name) => `${name}:3`).join(", ")}, dur>500 (cycles), ns>100, value=2`);
    } else {
      const codes = new Set(regions.flatMap((region, code) => (region.name.toLowerCase().includes(word) ? [code] : [])));
      tests.push((row) => codes.has(trace.region[row]));
    }
  }
  return tests.length ? (row) => tests.every((test) => test(row)) : null;
}

function comparison(trace, name, sign, limit) {
  const read = { dur: (row) => trace.cycles[row], ns: (row) => trace.dur[row], value: (row) => trace.value.get(row) ?? NaN }[name];
  return {
    "<": (row) => read(row) < limit,
    ">": (row) => read(row) > limit,
    "<=": (row) => read(row) <= limit,
    ">=": (row) => read(row) >= limit,
    "=": (row) => read(row) === limit,
  }[sign];
}

// All matches: a flag per row, and the matching rows in order of time.
export function findMatches(trace, test, keeps) {
  const flags = new Uint8Array(trace.count);
  const rows = [];
  const kept = Uint8Array.from({ length: trace.tracks.count }, (_, track) => (keeps(track) ? 1 : 0));
  for (let row = 0; row < trace.count; row++) {
    if (!kept[trace.track[row]] || !test(row)) continue;
    flags[row] = 1;
    rows.push(row);
  }
  const order = Float64Array.from(rows).sort((a, b) => trace.start[a] - trace.start[b]);
  return { flags, rows: Int32Array.from(order) };
}
