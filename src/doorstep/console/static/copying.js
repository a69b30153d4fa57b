// <button data-copy="#id"> copies the text of that element. Without https (except on localhost) or without permission, a
// page cannot use the clipboard: the text is selected instead.
export function copyTexts() {
  document.addEventListener("click", async (event) => {
    const button = event.target.closest("[data-copy]");
    if (!button) return;
    const said = await copy(document.querySelector(button.dataset.copy));
    const label = button.dataset.label ??= button.textContent;
    button.textContent = said;
    setTimeout(() => { button.textContent = label; }, 1500);
  });
}

async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
    return "Copied";
  } catch {
    getSelection().selectAllChildren(element);
    return "Selected";
  }
}
