// The sentence about what was done. Where the page did not come with one it lies over the page, so that no row moves
// away under the mouse, and a good one goes after a while.
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
  const told = document.getElementById("told");
  const over = told.hidden || told.classList.contains("over");
  told.className = `said ${good ? "good" : "bad"}${over ? " over" : ""}`;
  told.textContent = words;
  told.hidden = false;
  clearTimeout(timer);
  if (good && over) timer = setTimeout(() => { told.hidden = true; }, LASTS_MS);
}
