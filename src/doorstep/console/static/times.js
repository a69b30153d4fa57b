// Keeps relative times such as "3 min ago" current on pages that do not refresh, by the server's clock. The texts are
// the same as in formatting.py.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const THIN = "\u2009";

let ahead = 0; // milliseconds by which the server's clock is ahead of this one

export function keepTimes() {
  compare();
  document.addEventListener("htmx:after:swap", compare);
  setInterval(() => document.querySelectorAll("time[datetime]").forEach(reword), 5000);
}

// The time of the live part, if there is one, is the newest.
function compare() {
  const told = document.querySelector("[data-live]") ?? document.body;
  ahead = Date.parse(told.dataset.now) - Date.now() || 0;
}

function reword(element) {
  const seconds = (Date.now() + ahead - Date.parse(element.dateTime)) / 1000;
  const words = lasting(Math.floor(Math.abs(seconds)));
  element.textContent = Math.abs(seconds) < 1 ? "now" : seconds < 0 ? `in ${words}` : `${words} ago`;
}

function lasting(whole) {
  const place = UNITS.findIndex(([size]) => whole >= size);
  if (place < 0) return `1${THIN}s`;
  const [size, unit] = UNITS[place];
  const [next, nextUnit] = UNITS[place + 1] ?? [1, ""];
  const rest = nextUnit ? Math.floor((whole % size) / next) : 0;
  const more = rest && whole < 10 * size ? ` ${rest}${THIN}${nextUnit}` : "";
  return `${Math.floor(whole / size)}${THIN}${unit}${more}`;
}
