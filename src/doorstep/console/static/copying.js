// <button data-copy="#id"> copies the text of that element. A page cannot use the clipboard without permission, or
// without https (except on localhost). Then the text is selected instead.
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
