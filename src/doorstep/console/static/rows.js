// Boxes of a list: shift ticks a range, the bar above tells how many, and rows can be walked with the keyboard.
let last = null;
let place = null; // the row that the keyboard was at last, in what order the rows were then, and what became of it
const NOT_THE_ROW = "a, button, input, label, select, details, code, td.box"; // a click on these means them, not their row

export function tickRows() {
  document.addEventListener("click", (event) => {
    const box = event.target.closest("input[data-row]");
    if (box) {
      if (event.shiftKey && last?.isConnected) tickRange(last, box);
      last = box;
      tell();
    }
    if (event.target.closest("[data-all-rows]")) {
      boxes().forEach((one) => { one.checked = event.target.checked; });
      tell();
    }
    if (event.target.closest("[data-untick]")) untick();
    openRow(event);
  });
  document.addEventListener("focusin", remember);
  document.addEventListener("htmx:after:swap", () => { lookForIt(); tell(); });
  tell();
}

export function untick() {
  boxes().forEach((one) => { one.checked = false; });
  tell();
}

export function ticked() {
  return boxes().filter((one) => one.checked);
}

// The row that the keyboard is at.
export function present() {
  return document.activeElement?.closest("tr[data-open]");
}

// Whether that row has left its place: one that was retried and delivered leaves the list, one that failed again waits
// further down. Whoever went to it stays where it was.
export function isGone() {
  return Boolean(place?.gone) && document.activeElement === document.body;
}

// Something was done to what the keyboard is at: where that takes the row, nobody wants to follow.
export function letGo() {
  if (place) place.free = true;
}

export function step(by) {
  const all = rows();
  if (!all.length) return;
  const at = all.indexOf(present());
  const next = at >= 0 ? all[at + by] : isGone() ? neighbour(by) : all[0];
  (next ?? all[by < 0 ? 0 : all.length - 1]).focus();
}

export function tick(row) {
  const box = row?.querySelector("input[data-row]");
  if (!box) return;
  box.checked = !box.checked;
  last = box;
  tell();
}

function rows() {
  return [...document.querySelectorAll("tr[data-open]")];
}

function remember(event) {
  const row = event.target.closest("tr[data-open]");
  place = row && (row === place?.row ? place : { row, order: rows() });
}

function lookForIt() {
  if (!place || place.gone) return;
  const all = rows();
  const next = all[all.indexOf(place.row) + 1];
  place.gone = !place.row.isConnected || (place.free && next !== neighbour(1));
  if (!place.gone) place.order = all;
  else if (place.row === present()) document.activeElement.blur();
}

// The next row, or the one before, that is still there of those among which that row was.
function neighbour(by) {
  const at = place.order.indexOf(place.row);
  const there = by < 0 ? place.order.slice(0, at).reverse() : place.order.slice(at + 1);
  return there.find((one) => one.isConnected);
}

// Unless a text in it was marked, or something in it was meant.
function openRow(event) {
  const row = event.target.closest("tr[data-open]");
  if (!row || event.target.closest(NOT_THE_ROW) || !getSelection().isCollapsed) return;
  if (event.ctrlKey || event.metaKey) window.open(row.dataset.open, "_blank", "noopener");
  else if (!event.shiftKey) location.assign(row.dataset.open);
}

function boxes() {
  return [...document.querySelectorAll("input[data-row]")];
}

function tickRange(from, to) {
  const all = boxes();
  const [low, high] = [all.indexOf(from), all.indexOf(to)].sort((a, b) => a - b);
  for (const one of all.slice(low, high + 1)) one.checked = to.checked;
}

function tell() {
  const bar = document.querySelector("[data-selection]");
  const count = ticked().length;
  if (bar) {
    bar.toggleAttribute("data-some", count > 0);
    bar.querySelector("[data-selected]").textContent = `${count} ticked`;
    if (count === 0) bar.querySelector("[data-all]").checked = false;
  }
  const head = document.querySelector("[data-all-rows]");
  if (head) {
    head.checked = count > 0 && count === boxes().length;
    head.indeterminate = count > 0 && count < boxes().length;
  }
  document.dispatchEvent(new Event("doorstep:ticked"));
}
