// Sets the theme before anything is drawn, so that the page does not flash.
(() => {
  let chosen = null;
  try { chosen = localStorage.getItem("eventstore-theme"); } catch { /* no storage: the system's */ }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
