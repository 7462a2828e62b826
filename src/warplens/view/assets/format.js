// Numbers as people read them.

const WHOLE = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

export function whole(value) {
  return WHOLE.format(value);
}

export function timeNs(value, digits = 3) {
  const size = Math.abs(value);
  if (size >= 1e9) return `${trim(value / 1e9, digits)} s`;
  if (size >= 1e6) return `${trim(value / 1e6, digits)} ms`;
  if (size >= 1e3) return `${trim(value / 1e3, digits)} µs`;
  return `${trim(value, size < 10 && value % 1 ? 2 : 0)} ns`;
}

function trim(value, digits) {
  return value.toLocaleString("en-US", { maximumFractionDigits: digits });
}

// Round steps for an axis, at least `gap` pixels apart.
export function tickStep(perPixel, gap = 90) {
  const least = perPixel * gap;
  const power = 10 ** Math.floor(Math.log10(least));
  for (const factor of [1, 2, 5, 10]) if (power * factor >= least) return power * factor;
  return power * 10;
}

const UNITS = [["s", 1e9], ["ms", 1e6], ["µs", 1e3], ["ns", 1]];

// A time on an axis whose ticks are `step` apart: in the largest unit that tells two ticks apart with few digits.
export function tickLabel(value, step, largest) {
  if (Math.abs(value) < step / 2) return "0";
  const [unit, size] = UNITS.find(([, each]) => largest >= each && step >= each / 1000) ?? UNITS[3];
  const digits = Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9));
  return `${(value / size).toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}
