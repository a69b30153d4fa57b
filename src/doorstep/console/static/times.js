// Shows dates and times in the browser's time zone, with UTC on hover, takes them in it, and keeps relative times such as
// "3 min ago" current on pages that do not refresh, by the server's clock. The relative texts are the same as in
// formatting.py.
const UNITS = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
const THIN = "\u2009";
const LOCAL = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" }); // as in 2026-01-31 14:30:05

const localized = new WeakSet(); // the inputs that show local time
let ahead = 0; // milliseconds by which the server's clock is ahead of this one

export function keepTimes() {
  adopt();
  document.addEventListener("htmx:after:swap", adopt);
  document.addEventListener("doorstep:shown", localize); // a dialog, or the result of an action
  document.addEventListener("formdata", sendUtc);
  setInterval(() => document.querySelectorAll("time[datetime]:not([data-at])").forEach(reword), 5000);
}

export function local(milliseconds) {
  return LOCAL.format(milliseconds);
}

// The time of the live part, if there is one, is the newest.
function adopt() {
  const told = document.querySelector("[data-live]") ?? document.body;
  ahead = Date.parse(told.dataset.now) - Date.now() || 0;
  localize();
}

// A swap restores the server's texts and titles, so that an element without a title, or with UTC alone, is new.
function localize() {
  for (const element of document.querySelectorAll("time[datetime]")) {
    const own = local(Date.parse(element.dateTime));
    if (!element.hasAttribute("data-at")) element.title = `${own}\n${element.title.split("\n").at(-1)}`;
    else if (!element.title) {
      element.title = element.textContent;
      const fraction = /:\d\d(\.\d+)/.exec(element.textContent)?.[1] ?? "";
      const isShort = !/\d{4}-/.test(element.textContent) && own.slice(0, 10) === local(Date.now() + ahead).slice(0, 10);
      element.textContent = (isShort ? own.slice(11) : own) + fraction;
    }
  }
  document.querySelectorAll("[type=datetime-local]").forEach(localizeInput);
}

// Without scripts, an input and its label are in UTC. An input is converted once, from the value that the server sent.
function localizeInput(input) {
  if (localized.has(input)) return;
  localized.add(input);
  if (input.defaultValue) input.value = local(Date.parse(`${input.defaultValue}Z`)).replace(" ", "T");
  if (input.ariaLabel) input.ariaLabel = input.ariaLabel.replace(" (UTC)", "");
  input.title = LOCAL.resolvedOptions().timeZone;
  for (const label of input.parentElement.querySelectorAll("label")) label.textContent = label.textContent.replace(" (UTC)", "");
}

function sendUtc({ target: form, formData }) {
  for (const input of form.querySelectorAll("[type=datetime-local]")) {
    if (input.value && localized.has(input)) formData.set(input.name, new Date(input.value).toISOString());
  }
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
