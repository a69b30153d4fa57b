// A form is sent once, however often its button is clicked. Actions on a row, and forms in a dialog over the list, are
// sent without leaving the list: the result is shown, the list is refreshed, and scroll position, selection and focus
// stay. If the response redirects to another page, the browser goes there.
import { question, show } from "./dialogs.js";
import { unreachable } from "./live.js";
import { letGo } from "./rows.js";
import { keepForNextPage, tell, tellOf } from "./telling.js";

const NO_ANSWER = "No response. Check whether it was done before you try again.";
const AGAIN_MS = 10_000; // then the form can be sent again: if the user stops the navigation, there is no browser event
const sent = new Set(); // until the response arrives: forms that navigate, and the buttons of forms that do not

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
  else unreachable(); // the action was done, but the list cannot be loaded: keep the old list
  tellOf(told);
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

// Shows the confirmation again with its error, or an error page.
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
  if (told?.textContent) keepForNextPage(told);
  location.assign(url);
}

function refreshWith(text) {
  const live = document.getElementById("live");
  return window.htmx.swap({ sourceElement: live, target: live, select: "#live", selectOOB: live.getAttribute("hx-select-oob"), swap: "outerMorph", text });
}
