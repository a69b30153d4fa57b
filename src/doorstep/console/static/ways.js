// Radio buttons that each have a field: filling in the field selects the button.
export function chooseWays() {
  document.addEventListener("input", (event) => {
    const way = event.target.closest(".ways .row")?.querySelector("input[type=radio]");
    if (way && way !== event.target && event.target.value) way.checked = true;
  });
}
