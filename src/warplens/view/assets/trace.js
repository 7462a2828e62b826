// One trace in memory: a typed array per column, spans ordered by track, then by begin.

export const SPAN = 0;
export const KIND_NAMES = ["span", "instant", "value"];
const TRACK_COLUMNS = ["rank", "device", "launch", "sm", "block", "warp", "lane", "kernel", "role"];

export function unpackTrace(columns) {
  const counts = columns.ints("track.count");
  const tracks = { count: counts.length, first: new Int32Array(counts.length + 1) };
  for (let t = 0; t < counts.length; t++) tracks.first[t + 1] = tracks.first[t] + counts[t];
  for (const name of TRACK_COLUMNS) tracks[name] = columns.ints(`track.${name}`);

  const count = columns.count("region");
  const trace = {
    count,
    tracks,
    track: new Int32Array(count),
    region: columns.ints("region"),
    kind: columns.ints("kind"),
    depth: columns.ints("depth"),
    lane: columns.ints("lane"),
    parent: columns.ints("parent"),
    start: new Float64Array(count),
    dur: new Float64Array(count),
    cycle: new Float64Array(count),
    cycles: columns.ints("cycles"),
    value: new Map(),
    open: new Set(),
    barriers: new Set(), // rows that record what a warp did with a barrier
    releasedBy: new Map(), // a waiting span to the record of the arrival that released it
    releases: new Map(), // such a record, or the span around it, to the spans that it released
  };
  for (let i = 0; i < count; i++) {
    trace.parent[i] = trace.parent[i] ? i - trace.parent[i] : -1;
    trace.lane[i] += trace.depth[i];
  }
  placeInTime(trace, columns);
  spanExtents(trace);
  const values = columns.floats("values");
  rowsFromSteps(columns.ints("value_rows")).forEach((row, at) => trace.value.set(row, values[at]));
  for (const row of rowsFromSteps(columns.ints("open_rows"))) trace.open.add(row);
  for (const row of rowsFromSteps(columns.ints("barrier_rows"))) trace.barriers.add(row);
  unpackEdges(trace, columns);
  return trace;
}

// Only waits that had to wait have an arrow.
function unpackEdges(trace, columns) {
  const arrivals = columns.ints("edge.arrival");
  const waited = columns.raw("edge.waited");
  rowsFromSteps(columns.ints("edge.wait")).forEach((wait, at) => {
    if (!waited[at]) return;
    const record = wait + arrivals[at];
    trace.releasedBy.set(wait, record);
    for (const row of [record, trace.parent[record]]) {
      if (row < 0) continue;
      if (!trace.releases.has(row)) trace.releases.set(row, []);
      trace.releases.get(row).push(wait);
    }
  });
}

// Cycles are the sum of steps; ns are the prediction of the track's rate plus a difference.
function placeInTime(trace, columns) {
  const { tracks } = trace;
  const step = columns.ints("cycle");
  const drift = columns.ints("ns");
  const rest = columns.ints("dur");
  const firstCycle = columns.ints("track.cycle");
  const firstNs = columns.ints("track.ns");
  const rates = columns.floats("track.rate");
  for (let t = 0; t < tracks.count; t++) {
    const rate = rates[t];
    let cycle = firstCycle[t];
    let ns = firstNs[t];
    for (let i = tracks.first[t]; i < tracks.first[t + 1]; i++) {
      cycle += step[i];
      ns += Math.floor(step[i] * rate + 0.5) + drift[i];
      trace.track[i] = t;
      trace.cycle[i] = cycle;
      trace.start[i] = ns;
      trace.dur[i] = Math.floor(trace.cycles[i] * rate + 0.5) + rest[i];
    }
  }
}

function spanExtents(trace) {
  const { tracks, start, dur } = trace;
  tracks.begin = new Float64Array(tracks.count);
  tracks.end = new Float64Array(tracks.count);
  trace.begin = Infinity;
  trace.end = -Infinity;
  for (let t = 0; t < tracks.count; t++) {
    let begin = Infinity, end = -Infinity;
    for (let i = tracks.first[t]; i < tracks.first[t + 1]; i++) {
      begin = Math.min(begin, start[i]); // a clock may step back, so the first is not always the earliest
      end = Math.max(end, start[i] + dur[i]);
    }
    tracks.begin[t] = begin;
    tracks.end[t] = end;
    trace.begin = Math.min(trace.begin, tracks.begin[t]);
    trace.end = Math.max(trace.end, end);
  }
  if (!tracks.count) trace.begin = 0;
  if (!(trace.end > trace.begin)) trace.end = trace.begin + 1;
}

function rowsFromSteps(steps) {
  const rows = new Array(steps.length);
  let row = 0;
  for (let i = 0; i < steps.length; i++) rows[i] = row += steps[i];
  return rows;
}
