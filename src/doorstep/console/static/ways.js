// Where one of several ways is chosen, each with a field of its own: whoever fills in a field has chosen its way.
export function chooseWays() {
  document.addEventListener("input", (event) => {
    const way = event.target.closest(".ways .row")?.querySelector("input[type=radio]");
    if (way && way !== event.target && event.target.value) way.checked = true;
  });
}
