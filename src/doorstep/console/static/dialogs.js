// A link or button marked data-dialog leads to a page with a question; here the question opens over the list instead.
// The page's #question is fetched and shown; its form is sent as any other.
import { unreachable } from "./live.js";

export function openDialogs() {
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-dialog]");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    open(link.href);
  });
  document.addEventListener("submit", (event) => {
    if (!event.submitter?.hasAttribute("data-dialog")) return;
    event.preventDefault();
    const place = event.submitter.getAttribute("formaction") ?? event.target.getAttribute("action");
    const url = new URL(place, location.href);
    for (const [name, value] of new FormData(event.target)) url.searchParams.append(name, value);
    open(url.href);
  });
  document.addEventListener("click", (event) => {
    if (event.target.closest("[data-close]")) {
      event.preventDefault();
      event.target.closest("dialog")?.close();
    }
  });
  document.querySelector("[data-help]")?.addEventListener("click", () => document.getElementById("help").showModal());
}

async function open(url) {
  const question = await fetched(url);
  if (!question) return question === null ? location.assign(url) : undefined;
  const dialog = document.getElementById("dialog");
  document.getElementById("dialog-body").replaceChildren(document.adoptNode(question));
  question.querySelector("h1")?.setAttribute("id", "dialog-title");
  dialog.showModal();
  question.querySelector("[autofocus]")?.focus();
}

// Null where it should be looked at as a page of its own, which can say what is wrong.
async function fetched(url) {
  document.documentElement.dataset.loading = "";
  try {
    const response = await fetch(url, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    return response.ok && !response.redirected ? page.getElementById("question") : null;
  } catch {
    return unreachable() ? undefined : null;
  } finally {
    delete document.documentElement.dataset.loading;
  }
}
