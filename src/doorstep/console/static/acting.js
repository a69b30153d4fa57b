// A form that does something is sent once, however often its button is clicked. What is done to a row, and what a
// question over the list is answered with, is sent without leaving the list: what came of it is told, the list is
// refreshed, and the place, the ticks and the focus stay. Where that leads to another page, it is gone to.
import { question, show } from "./dialogs.js";
import { unreachable } from "./live.js";
import { letGo } from "./rows.js";
import { keepForNextPage, tell } from "./telling.js";

const NO_ANSWER = "There was no answer. Look whether it was done before you try again.";
const AGAIN_MS = 10_000; // nobody tells us of a form that leads away and was stopped on its way
const sent = new Set(); // forms that lead away, and buttons of forms that do not, until the answer is there

export function sendOnce() {
  document.addEventListener("submit", (event) => {
    const { target: form, submitter } = event;
    if (event.defaultPrevented || form.getAttribute("method") !== "post") return;
    const stays = submitter && isInPlace(form, submitter);
    const one = stays ? submitter : form;
    if (stays || sent.has(one)) event.preventDefault();
    if (sent.has(one)) return;
    sent.add(one);
    if (!stays) return setTimeout(() => sent.delete(one), AGAIN_MS);
    letGo();
    send(form, submitter).finally(() => sent.delete(one));
  });
  addEventListener("pageshow", () => sent.clear());
}

function isInPlace(form, submitter) {
  return submitter.closest("#live tr") !== null || form.matches("dialog [data-in-place]");
}

async function send(form, button) {
  const answer = await answered(button.getAttribute("formaction") ?? form.getAttribute("action"), new FormData(form, button));
  if (answer.failed) return tell(NO_ANSWER, false);
  const told = answer.page.getElementById("told");
  if (!answer.redirected) return explain(answer.page);
  if (!isHere(answer.url)) return leave(answer.url, told);
  document.getElementById("dialog").close();
  if (answer.ok) await refreshWith(answer.text);
  else unreachable(); // it was done, but the list cannot be had: what is there stays
  if (told?.textContent) tell(told.textContent, told.classList.contains("good"));
}

async function answered(action, data) {
  document.documentElement.dataset.loading = "";
  try {
    const response = await fetch(action, { method: "POST", body: new URLSearchParams(data), headers: { Accept: "text/html" } });
    const text = await response.text();
    return { text, ok: response.ok, url: response.url, redirected: response.redirected, page: new DOMParser().parseFromString(text, "text/html") };
  } catch {
    return { failed: true };
  } finally {
    delete document.documentElement.dataset.loading;
  }
}

// The question once more, with what is wrong with the answer; or a page that tells of a problem.
function explain(page) {
  const again = question(page);
  if (again) return show(again);
  const [title, detail] = [".state h1", ".state p"].map((place) => page.querySelector(place)?.textContent.trim() ?? "");
  tell(title ? `${title}: ${detail}` : NO_ANSWER, false);
}

function isHere(url) {
  const there = new URL(url);
  return document.getElementById("live") !== null && there.pathname + there.search === location.pathname + location.search;
}

function leave(url, told) {
  if (told?.textContent) keepForNextPage(told.textContent, told.classList.contains("good"));
  location.assign(url);
}

function refreshWith(text) {
  const live = document.getElementById("live");
  return window.htmx.swap({ sourceElement: live, target: live, select: "#live", swap: "outerMorph", text });
}
