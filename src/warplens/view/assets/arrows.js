// Arrows from arrivals at barriers to the waits that they released, for the selected span.

const ARROW_HEAD = 5; // px
const MOST_ARROWS = 64;

// The arrows of a row: pairs of the arrival's record and the waiting span.
export function arrowsOf(trace, row) {
  if (row < 0) return [];
  const found = [];
  if (trace.releasedBy.has(row)) found.push([trace.releasedBy.get(row), row]);
  for (const wait of trace.releases.get(row) ?? []) found.push([trace.releasedBy.get(wait), wait]);
  return found.slice(0, MOST_ARROWS);
}

export function drawArrows(timeline, context) {
  const { trace, theme } = timeline;
  context.strokeStyle = context.fillStyle = theme.text;
  context.lineWidth = 1.5;
  for (const [record, wait] of arrowsOf(trace, timeline.selected)) {
    const from = timeline.boxOf(record);
    const to = timeline.boxOf(wait);
    if (!from || !to) continue;
    const [x0, y0] = [timeline.xOf(trace.start[record]), from.top + from.height / 2];
    const [x1, y1] = [timeline.xOf(trace.start[wait] + trace.dur[wait]), to.top + to.height / 2];
    drawArrow(context, x0, y0, x1, y1);
  }
}

// A curve that leaves and arrives horizontally, so that it shows the direction of time.
function drawArrow(context, x0, y0, x1, y1) {
  const bend = Math.max(Math.abs(x1 - x0) / 2, 12);
  context.beginPath();
  context.arc(x0, y0, 2.5, 0, 7);
  context.fill();
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - ARROW_HEAD, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - ARROW_HEAD - 2, y1 - ARROW_HEAD + 1);
  context.lineTo(x1 - ARROW_HEAD - 2, y1 + ARROW_HEAD - 1);
  context.closePath();
  context.fill();
}
