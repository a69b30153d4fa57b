// Loaded before anything is drawn, so that the page never flashes in the other theme.
const kept = localStorage.getItem("doorstep-theme");
if (kept) document.documentElement.dataset.theme = kept;
