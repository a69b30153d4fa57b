// The flash message. If it appears after the page was loaded, it floats over the page, so that no row moves under the
// mouse. A message with data-watch tells of an action whose result is not known yet: the page /console/outcome is read
// until it is. Messages of earlier actions stay until their results are there. A success message disappears after a while.
const LASTS_MS = 8000;
const [FIRST_MS, LAST_MS] = [500, 5000]; // between two looks at a result
const KEPT = "doorstep-told";
let timer = null;

export function tellWhatWasKept() {
  const told = place();
  if (told.textContent) {
    const line = message(told);
    told.replaceChildren(line);
    settle(line);
  }
  const kept = sessionStorage.getItem(KEPT);
  sessionStorage.removeItem(KEPT);
  if (kept) tell(...JSON.parse(kept));
}

export function keepForNextPage(told) {
  const line = message(told);
  sessionStorage.setItem(KEPT, JSON.stringify([line.textContent, line.dataset.good === "true", line.dataset.watch]));
}

// Tells what a page tells.
export function tellOf(told) {
  if (!told?.textContent) return;
  show(message(told));
}

export function tell(words, good, watch) {
  const line = document.createElement("span");
  line.textContent = words;
  line.dataset.good = good;
  if (watch) line.dataset.watch = watch;
  show(line);
}

function show(line) {
  const dialog = document.querySelector("#dialog[open] #dialog-body");
  if (dialog) return tellWithin(dialog, line.textContent);
  const told = place();
  if (line.dataset.watch && [...told.children].some((one) => one.dataset.watch === line.dataset.watch)) return; // told by the page itself
  told.classList.toggle("over", told.hidden || told.classList.contains("over"));
  [...told.children].filter((one) => !one.dataset.watch).forEach((one) => one.remove());
  told.append(line);
  settle(line);
}

// The message in the given element, as a line of its own.
function message(told) {
  const line = document.createElement("span");
  line.append(...[...told.childNodes].map((one) => document.importNode(one, true)));
  line.dataset.good = told.classList.contains("good") || told.classList.contains("waiting");
  if (told.dataset.watch) line.dataset.watch = told.dataset.watch;
  delete told.dataset.watch;
  return line;
}

function settle(line) {
  refresh();
  if (line.dataset.watch) follow(line);
}

function refresh() {
  const told = place(), lines = [...told.children];
  const waits = lines.some((one) => one.dataset.watch), good = lines.every((one) => one.dataset.good === "true");
  const over = told.classList.contains("over");
  told.className = `said ${!good ? "bad" : waits ? "waiting" : "good"}${over ? " over" : ""}`;
  told.hidden = false;
  document.dispatchEvent(new Event("doorstep:shown"));
  clearTimeout(timer);
  if (good && over && !waits) timer = setTimeout(() => { told.hidden = true; told.replaceChildren(); }, LASTS_MS);
}

async function follow(line) {
  for (let wait = FIRST_MS; line.dataset.watch; wait = Math.min(wait * 1.2, LAST_MS)) {
    await new Promise((done) => setTimeout(done, wait));
    if (!line.isConnected) return;
    const told = await outcome(line.dataset.watch);
    if (!told) continue;
    const next = message(told);
    if (next.textContent === line.words && next.dataset.watch) continue; // a time in it may be local by now
    next.words = next.textContent;
    line.replaceWith(next);
    line = next;
    refresh();
  }
}

async function outcome(watch) {
  try {
    const response = await fetch(`/console/outcome?${watch}`, { headers: { Accept: "text/html" } });
    const told = new DOMParser().parseFromString(await response.text(), "text/html").getElementById("told");
    return response.ok && told?.textContent ? told : null;
  } catch {
    return null;
  }
}

function place() {
  return document.getElementById("told");
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
