// Radio buttons with a field each: filling in a field selects its button.
export function chooseWays() {
  document.addEventListener("input", (event) => {
    const way = event.target.closest(".ways .row")?.querySelector("input[type=radio]");
    if (way && way !== event.target && event.target.value) way.checked = true;
  });
}
