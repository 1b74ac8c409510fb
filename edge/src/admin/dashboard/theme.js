// Sets the theme before the first paint: the chosen one, or that of the system. A classic script, since modules run only
// after the page was parsed.
"use strict";
(function () {
  const system = matchMedia("(prefers-color-scheme: dark)");
  function apply() {
    let chosen = "";
    try {
      chosen = localStorage.getItem("sluice-theme");
    } catch (_) {
      // Without storage, the theme follows the system.
    }
    document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
    dispatchEvent(new Event("sluice-theme"));
  }
  system.addEventListener("change", apply);
  addEventListener("sluice-choose", apply);
  apply();
})();
