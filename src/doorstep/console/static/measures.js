// Values and axes of charts: texts, ranges and ticks. Pure.
const PERCENTS = [10, 25, 50, 100];

// Round steps for the time axis. The largest steps are for queues that are days old.
export const SPANS = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600, 43200, 86400,
];

// The axis of a rate covers the top, the bottom, or all of 0 to 100.
export function scale(unit, low, high) {
  if (unit === "%") return low !== null && low >= 90 ? [90, 100] : [0, PERCENTS.find((top) => (high ?? 0) <= top) ?? 100];
  return [0, Math.max(high ?? 0, unit === "s" ? 0.01 : 1) * 1.1];
}

export function worded(value, unit) {
  if (value === null || value === undefined) return "–";
  if (unit === "s") return span(value);
  if (unit === "%") return percent(value);
  if (Math.abs(value) >= 1e6) return `${+(value / 1e6).toPrecision(3)}M`;
  return Math.abs(value) >= 1e4 ? `${+(value / 1e3).toPrecision(3)}k` : `${+value.toPrecision(4)}`;
}

// Rounds as the server does: 100 means exactly all, 0 means exactly none.
function percent(value) {
  if (value >= 99.95 && value < 100) return "99.9%";
  return value > 0 && value < 0.05 ? "0.1%" : `${+value.toFixed(1)}%`;
}

function span(seconds) {
  if (seconds === 0) return "0";
  const [size, unit] = [[3600, "h"], [60, "min"], [1, "s"]].find(([least]) => seconds >= least) ?? [0.001, "ms"];
  return `${+(seconds / size).toPrecision(3)} ${unit}`;
}
