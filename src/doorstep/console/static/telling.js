// The flash message. If it appears after the page was loaded, it floats over the page, so that no row moves under the
// mouse. A success message disappears after a while.
const LASTS_MS = 8000;
const KEPT = "doorstep-told";
let timer = null;

export function tellWhatWasKept() {
  const kept = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  if (kept) tell(...JSON.parse(kept));
}

export function keepForNextPage(words, good) {
  sessionStorage.setItem(KEPT, JSON.stringify([words, good]));
}

export function tell(words, good) {
  const dialog = document.querySelector("#dialog[open] #dialog-body");
  if (dialog) return tellWithin(dialog, words);
  const told = document.getElementById("told");
  const over = told.hidden || told.classList.contains("over");
  told.className = `said ${good ? "good" : "bad"}${over ? " over" : ""}`;
  told.textContent = words;
  told.hidden = false;
  clearTimeout(timer);
  if (good && over) timer = setTimeout(() => { told.hidden = true; }, LASTS_MS);
}

// Users do not see content behind a dialog, and screen readers do not announce it. So while a dialog is open, only
// errors are shown.
function tellWithin(dialog, words) {
  const told = dialog.querySelector("[data-told]") ?? document.createElement("p");
  told.className = "said bad";
  told.dataset.told = "";
  told.setAttribute("role", "alert");
  told.textContent = words;
  dialog.prepend(told);
}
