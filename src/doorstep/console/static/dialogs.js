// A link or button with data-dialog leads to a page that asks for confirmation. With JavaScript, the confirmation opens
// in a dialog over the list: the page's #question is fetched and shown, and its form is sent like any other form.
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
    const dialog = event.target.closest("[data-close]")?.closest("dialog"); // none if the question is a separate page
    if (!dialog) return;
    event.preventDefault();
    dialog.close();
  });
  document.querySelector("[data-help]")?.addEventListener("click", () => document.getElementById("help").showModal());
}

async function open(url) {
  const found = await fetched(url);
  if (found) show(found);
  else if (found === null) location.assign(url);
}

// Shows a form in the dialog. If the dialog is already open, its content is replaced.
export function show(form) {
  const dialog = document.getElementById("dialog");
  document.getElementById("dialog-body").replaceChildren(document.adoptNode(form));
  form.querySelector("h1")?.setAttribute("id", "dialog-title");
  if (!dialog.open) dialog.showModal();
  form.querySelector("[autofocus]")?.focus();
  document.dispatchEvent(new Event("doorstep:shown"));
}

// The confirmation form in a page.
export function question(page) {
  return page.getElementById("question");
}

// Null if the link should open as a separate page, which can show the error.
async function fetched(url) {
  document.documentElement.dataset.loading = "";
  try {
    const response = await fetch(url, { headers: { Accept: "text/html" } });
    const page = new DOMParser().parseFromString(await response.text(), "text/html");
    return response.ok && !response.redirected ? question(page) : null;
  } catch {
    return unreachable() ? undefined : null;
  } finally {
    delete document.documentElement.dataset.loading;
  }
}
