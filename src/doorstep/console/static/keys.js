// Keyboard shortcuts; none while the user types into a field.
import { refresh } from "./live.js";
import { isGone, present, step, tick, ticked, untick } from "./rows.js";

let going = false;

export function readKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.repeat && !HELD.has(event.key)) return;
    if (event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    if (event.target.closest("input:not([type=checkbox]), textarea, select, [contenteditable]")) return;
    if (document.querySelector("dialog[open]")) return;
    if (going) return go(event);
    const done = KEYS[event.key];
    if (done && done(event) !== false) event.preventDefault();
  });
}

const HELD = new Set(["j", "k"]); // only these repeat while the key is held down
const KEYS = {
  s: () => document.getElementById("search")?.select(),
  "/": () => document.querySelector("[data-filter] input, [data-filter] select")?.focus(),
  "?": () => document.getElementById("help")?.showModal(),
  j: () => step(1),
  k: () => step(-1),
  x: () => tick(present()),
  r: () => press("r"),
  ".": () => refresh(),
  Escape: () => untick(),
  g: () => { going = true; setTimeout(() => { going = false; }, 1500); },
  Enter: (event) => event.target.matches("tr[data-open]") && location.assign(event.target.dataset.open),
};

function go(event) {
  going = false;
  const link = [...document.querySelectorAll("[data-go]")].find((one) => one.dataset.go === event.key);
  if (link) {
    event.preventDefault();
    location.assign(link.href);
  }
}

// A shortcut acts on the selected rows, else on the focused row, else on the page. It never acts on a row that was not
// focused, and does nothing if the focused row has just left the list.
function press(key) {
  if (!ticked().length && isGone()) return;
  const place = ticked().length ? "[data-selection]" : present() ? "tr[data-open]:focus-within" : "main";
  const found = [...document.querySelectorAll(`${place} [data-key="${key}"]`)].filter((one) => one.checkVisibility());
  found.find((one) => place !== "main" || !one.closest("tr[data-open]"))?.click();
}
