// Runs: intervals that each show one span and never overlap within a line. Lines are painted.

import { SPAN } from "./trace.js";

class Runs {
  constructor(capacity, lines) {
    this.begin = new Float64Array(capacity);
    this.end = new Float64Array(capacity);
    this.row = new Int32Array(capacity);
    this.first = new Int32Array(lines + 1);
    this.count = 0;
  }

  add(row, begin, end) {
    if (!(end > begin)) return;
    this.begin[this.count] = begin;
    this.end[this.count] = end;
    this.row[this.count++] = row;
  }

  // The first run of a line that ends after `time`.
  seek(line, time) {
    let low = this.first[line];
    let high = this.first[line + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.end[middle] > time) high = middle;
      else low = middle + 1;
    }
    return low;
  }
}

// One line per track: at any time the active span that began last. `shown[region]` filters regions.
export function innermostRuns(trace, shown) {
  const { start, dur, kind, region, tracks } = trace;
  const runs = new Runs(2 * trace.count, tracks.count);
  const stack = new Int32Array(trace.count + 1);
  for (let t = 0; t < tracks.count; t++) {
    let size = 0;
    let now = -Infinity;
    for (let i = tracks.first[t]; i < tracks.first[t + 1]; i++) {
      if (kind[i] !== SPAN || dur[i] <= 0 || !shown[region[i]]) continue;
      while (size && start[stack[size - 1]] + dur[stack[size - 1]] <= start[i]) {
        const done = stack[--size];
        runs.add(done, now, start[done] + dur[done]);
        now = Math.max(now, start[done] + dur[done]);
      }
      if (size) runs.add(stack[size - 1], now, start[i]);
      now = start[i];
      stack[size++] = i;
    }
    while (size) {
      const done = stack[--size];
      runs.add(done, now, start[done] + dur[done]);
      now = Math.max(now, start[done] + dur[done]);
    }
    runs.first[t + 1] = runs.count;
  }
  return runs;
}

// One line per nesting level of each track; `lineOf[track]` is its outermost line, followed by its inner ones.
export function nestedRuns(trace, shown) {
  const { start, dur, kind, region, lane, tracks } = trace;
  const lineOf = new Int32Array(tracks.count + 1);
  for (let t = 0; t < tracks.count; t++) {
    let deepest = 0;
    for (let i = tracks.first[t]; i < tracks.first[t + 1]; i++) if (lane[i] > deepest) deepest = lane[i];
    lineOf[t + 1] = lineOf[t] + deepest + 1;
  }
  const runs = new Runs(trace.count, lineOf[tracks.count]);
  for (let t = 0; t < tracks.count; t++) {
    for (let line = lineOf[t]; line < lineOf[t + 1]; line++) {
      const level = line - lineOf[t];
      for (let i = tracks.first[t]; i < tracks.first[t + 1]; i++) {
        if (lane[i] === level && kind[i] === SPAN && shown[region[i]]) runs.add(i, start[i], start[i] + dur[i]);
      }
      runs.first[line + 1] = runs.count;
    }
  }
  runs.lineOf = lineOf;
  return runs;
}
