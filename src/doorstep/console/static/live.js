// A part of the page that refreshes itself, except while somebody is about to act on what is there. It says which.
import { ticked } from "./rows.js";

const SLOW_MS = 800;
let failed = false;
let seen = Date.now();
let asked = null; // since when an answer is waited for
let unasked = false; // nobody asked for it: the page refreshes itself

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

// Somebody asked for something and there was no answer; says so, and whether there was a place to say it.
export function unreachable() {
  if (part()) ended(true);
  return part() !== null;
}

// A page that tells of a problem has no part to put here, and its title is not this page's. And since it was asked for,
// somebody may have ticked a row or opened a question: what they are about to act on stays.
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

// Only what is new is written: readers of screens tell every change.
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
  return waits() ? ["paused", ticked().length ? "Paused while rows are ticked" : "Paused"] : ["live", "Live"];
}
