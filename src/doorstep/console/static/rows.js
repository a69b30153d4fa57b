// Boxes of a list: shift ticks a range, the bar above tells how many, and rows can be walked with the keyboard.
let last = null;

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
  });
  document.addEventListener("htmx:after:swap", tell);
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

export function step(by) {
  const rows = [...document.querySelectorAll("tr[data-open]")];
  if (!rows.length) return;
  const at = rows.indexOf(present());
  const next = rows[Math.min(rows.length - 1, Math.max(0, at < 0 ? 0 : at + by))];
  next.focus();
}

export function tick(row) {
  const box = row?.querySelector("input[data-row]");
  if (!box) return;
  box.checked = !box.checked;
  last = box;
  tell();
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
