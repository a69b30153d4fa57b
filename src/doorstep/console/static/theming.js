// The button cycles through system, light and dark.
const THEMES = ["system", "light", "dark"];

export function chooseTheme() {
  const button = document.querySelector("[data-theme-button]");
  if (!button) return;
  say(button);
  button.addEventListener("click", () => {
    const next = THEMES[(THEMES.indexOf(present()) + 1) % THEMES.length];
    if (next === "system") {
      localStorage.removeItem("doorstep-theme");
      delete document.documentElement.dataset.theme;
    } else {
      localStorage.setItem("doorstep-theme", next);
      document.documentElement.dataset.theme = next;
    }
    say(button);
    document.dispatchEvent(new Event("doorstep:theme"));
  });
  const menu = document.querySelector("[data-menu]");
  menu.addEventListener("click", () => {
    const open = menu.getAttribute("aria-expanded") === "true";
    menu.setAttribute("aria-expanded", String(!open));
  });
}

function present() {
  return document.documentElement.dataset.theme ?? "system";
}

function say(button) {
  button.textContent = `Theme: ${present()}`;
}
