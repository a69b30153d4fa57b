// On a narrow screen each row of a list is a card (see style.css). The cells show the headings of their columns, which
// the style sheet takes from data-label. Of a filter, only the first two fields are shown, unless others are filled in.
export function fitNarrow() {
  label();
  document.addEventListener("htmx:after:swap", label);
  document.querySelectorAll("[data-filter]").forEach(fold);
}

function fold(filter) {
  const others = [...filter.querySelectorAll(":scope > div:nth-of-type(n + 3)")];
  const filled = others.some((one) => one.querySelector("input, select")?.value);
  filter.toggleAttribute("data-all", !others.length || filled);
  if (!others.length || filled) return;
  const more = document.createElement("button");
  Object.assign(more, { type: "button", className: "quiet", textContent: "More filters" });
  more.dataset.more = "";
  more.addEventListener("click", () => { filter.dataset.all = ""; more.remove(); others[0].querySelector("input, select")?.focus(); });
  filter.append(more);
}

function label() {
  for (const table of document.querySelectorAll(".scroll > table")) {
    const names = [...(table.tHead?.rows[0].cells ?? [])].map((head) => (head.querySelector(".skip, svg, input") ? "" : head.textContent.trim()));
    for (const body of table.tBodies) for (const row of body.rows) for (const cell of row.cells) cell.dataset.label = cell.colSpan > 1 ? "" : names[cell.cellIndex] ?? "";
  }
}
