// The statistics of the selected part of a trace: a stretch of time, some rows, and what the filters leave.

import { SPAN } from "./trace.js";

// The stretch of time and the tracks that are selected. Without a selection: everything that the filters leave.
export function selectionOf(timeline) {
  const { trace, measure, picked } = timeline;
  const named = new Set([...picked].flatMap((node) => node.tracks));
  const tracks = [];
  for (let t = 0; t < trace.tracks.count; t++) if (timeline.keeps(t) && (!picked.size || named.has(t))) tracks.push(t);
  const begin = measure ? Math.min(measure.from, measure.to) : -Infinity;
  const end = measure ? Math.max(measure.from, measure.to) : Infinity;
  return { begin, end, tracks, shown: timeline.shown };
}

// Closed spans that lie at least partly in the selection, by region, the largest share first. Durations are whole; a
// share is the part inside the selection, of the time that the selected warps lived in it.
export function selectionStatistics(trace, { begin, end, tracks, shown }) {
  const found = new Map();
  let [lived, count] = [0, 0];
  for (const t of tracks) {
    const [first, stop] = [trace.tracks.first[t], trace.tracks.first[t + 1]];
    let [low, high] = [Infinity, -Infinity];
    for (let i = first; i < stop; i++) {
      low = Math.min(low, trace.cycle[i]);
      high = Math.max(high, trace.cycle[i] + trace.cycles[i]);
      if (trace.kind[i] !== SPAN || !shown[trace.region[i]] || trace.open.has(i)) continue;
      const part = overlap(trace.start[i], trace.dur[i], begin, end);
      if (part === 0 && (trace.dur[i] > 0 || trace.start[i] < begin || trace.start[i] > end)) continue;
      let each = found.get(trace.region[i]);
      if (!each) found.set(trace.region[i], (each = { region: trace.region[i], cycles: 0, durations: [] }));
      each.cycles += trace.cycles[i] * part;
      each.durations.push(trace.cycles[i]);
      count++;
    }
    if (stop > first) lived += (high - low) * overlap(trace.tracks.begin[t], trace.tracks.end[t] - trace.tracks.begin[t], begin, end);
  }
  const regions = [...found.values()].map(({ region, cycles, durations }) => summarise(region, lived ? cycles / lived : 0, Float64Array.from(durations).sort()));
  return { count, warps: tracks.length, regions: regions.sort((a, b) => b.share - a.share) };
}

// Which part of a span lies between two times.
export function overlap(start, length, begin, end) {
  if (length <= 0) return 0;
  return Math.max(Math.min(start + length, end) - Math.max(start, begin), 0) / length;
}

function summarise(region, share, sorted) {
  let total = 0;
  for (const value of sorted) total += value;
  const [p50, p95, p99] = [50, 95, 99].map((percent) => percentile(sorted, percent));
  return { region, share, sorted, count: sorted.length, mean: total / sorted.length, p50, p95, p99 };
}

// Between the two nearest values, as numpy does it.
function percentile(sorted, percent) {
  const at = ((sorted.length - 1) * percent) / 100;
  const low = Math.floor(at);
  const high = Math.min(low + 1, sorted.length - 1);
  return sorted[low] + (sorted[high] - sorted[low]) * (at - low);
}

export function binned(sorted, bins) {
  const [low, high] = [sorted[0], sorted[sorted.length - 1]];
  const counts = new Array(high > low ? bins : 1).fill(0);
  for (const value of sorted) counts[Math.min(Math.floor(((value - low) / (high - low || 1)) * counts.length), counts.length - 1)]++;
  return { low, high, counts };
}
