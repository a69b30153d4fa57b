// The live part of a page refreshes itself, except while the user is about to act on it, and shows its status.
import { ticked } from "./rows.js";

const SLOW_MS = 800;
let failed = false;
let seen = Date.now();
let asked = null; // when the pending request was sent
let unasked = false; // the request is an automatic refresh

export function keepLive() {
  if (!part()) return;
  setInterval(look, 400);
  document.addEventListener("doorstep:ticked", say);
  document.addEventListener("visibilitychange", () => { if (!document.hidden && !waits()) refreshItself(); });
  document.addEventListener("htmx:before:request", () => { asked = Date.now(); });
  document.addEventListener("htmx:before:swap", keepWhatIsThere);
  document.addEventListener("htmx:after:swap", () => ended(false));
  for (const kind of ["htmx:error", "htmx:response:error"]) document.addEventListener(kind, () => ended(true));
  document.addEventListener("htmx:finally:request", () => { asked = null; unasked = false; });
  document.querySelector("[data-again]").addEventListener("click", refresh);
  say();
}

export function refresh() {
  seen = Date.now();
  const live = part();
  if (live) window.htmx.trigger(live, "doorstep:refresh");
}

function refreshItself() {
  unasked = true;
  refresh();
}

// A user action got no response. Shows this in the live status, and returns whether the page has a live part.
export function unreachable() {
  if (part()) ended(true);
  return part() !== null;
}

// Keeps the current content if the response is an error page. Also keeps it if the user has selected rows or opened a
// dialog since an automatic refresh was requested: rows that the user is about to act on must not change.
function keepWhatIsThere(event) {
  const { response } = event.detail.ctx;
  if (response?.status >= 400 || (response && unasked && waits())) event.preventDefault();
}

function ended(badly) {
  failed = badly;
  seen = Date.now();
  asked = null;
  say();
}

function part() {
  return document.querySelector("[data-live]");
}

function look() {
  say();
  const live = part();
  if (!live || document.hidden || asked !== null || waits()) return;
  if (Date.now() - seen >= Number(live.dataset.live) * 1000) refreshItself();
}

function waits() {
  return ticked().length > 0 || document.querySelector("dialog[open]") !== null;
}

// Writes the status only when it changes, because screen readers announce every write.
function say() {
  const [kind, words] = state();
  const status = document.getElementById("live-status");
  if (status.dataset.kind === kind) return;
  status.dataset.kind = kind;
  status.hidden = false;
  status.querySelector("[data-words]").textContent = words;
  const again = status.querySelector("[data-again]");
  again.hidden = kind !== "bad";
  again.textContent = again.hidden ? "" : "Try again";
}

function state() {
  if (asked !== null && Date.now() - asked > SLOW_MS) return ["slow", "Loading…"];
  if (failed) return ["bad", "Could not refresh. "];
  return waits() ? ["paused", ticked().length ? "Paused while rows are selected" : "Paused"] : ["live", "Live"];
}
