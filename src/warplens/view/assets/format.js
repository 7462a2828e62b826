// Numbers in words. `integer` and `duration` round as wording.py does.

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

function rounded(value, decimals) {
  const scale = 10 ** decimals;
  const options = { minimumFractionDigits: decimals, maximumFractionDigits: decimals };
  return (Math.floor(value * scale + 0.5) / scale).toLocaleString("en-US", options);
}

export function integer(value) {
  return rounded(value, 0);
}

// Three significant digits, or the whole number where that has more.
function threeDigits(value) {
  const size = Math.abs(value);
  return rounded(value, size < 9.995 ? 2 : size < 99.95 ? 1 : 0);
}

export function duration(ns) {
  const [unit, size] = UNITS.find(([, each]) => Math.abs(ns) >= each) ?? UNITS[3];
  return size > 1 ? `${threeDigits(ns / size)} ${unit}` : `${integer(ns)} ns`;
}

// A point in time, or a measured distance: to the nanosecond up to a millisecond.
export function preciseTime(ns, decimals = 3) {
  const [unit, size] = UNITS.find(([, each]) => Math.abs(ns) >= each) ?? UNITS[3];
  const shown = size > 1 ? decimals : Math.abs(ns) < 10 && ns % 1 ? 2 : 0;
  return `${(ns / size).toLocaleString("en-US", { maximumFractionDigits: shown })} ${unit}`;
}

// Round steps for an axis, at least `gap` pixels apart.
export function tickStep(perPixel, gap = 90) {
  const least = perPixel * gap;
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 2, 5, 10]) if (power * factor >= least) return power * factor;
  return power * 10;
}

// A time on an axis whose ticks are `step` apart: in the largest unit that tells two ticks apart with few digits.
export function tickLabel(value, step, largest) {
  if (Math.abs(value) < step / 2) return "0";
  const [unit, size] = UNITS.find(([, each]) => largest >= each && step >= each / 1000) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(value / size).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}
