// Selects rows of a list: shift selects a range, the bar above shows the count, and the keyboard moves between rows.
let last = null;
let place = null; // the row that last had the focus, the order of the rows at that time, and whether the row is gone
const NOT_THE_ROW = "a, button, input, label, select, details, code, td.box"; // a click on these does not open the row

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

// The focused row.
export function present() {
  return document.activeElement?.closest("tr[data-open]");
}

// Whether the focused row has left its position: a delivery that was retried leaves the list, or moves down if it fails
// again. The focus stays at the old position.
export function isGone() {
  return Boolean(place?.gone) && document.activeElement === document.body;
}

// An action was sent for the focused row: if the row moves, the focus does not follow it.
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

// The nearest row that is still in the list, before the last focused row if `by` is negative, otherwise after it.
function neighbour(by) {
  const at = place.order.indexOf(place.row);
  const there = by < 0 ? place.order.slice(0, at).reverse() : place.order.slice(at + 1);
  return there.find((one) => one.isConnected);
}

// A click opens the row, unless text was selected or the click was on an element in the row.
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
    bar.querySelector("[data-selected]").textContent = `${count} selected`;
    if (count === 0) bar.querySelector("[data-all]").checked = false;
  }
  const head = document.querySelector("[data-all-rows]");
  if (head) {
    head.checked = count > 0 && count === boxes().length;
    head.indeterminate = count > 0 && count < boxes().length;
  }
  document.dispatchEvent(new Event("doorstep:ticked"));
}
