// Sets the theme before the first paint. A classic script, since modules run only after the page was parsed.
"use strict";
(function () {
  try {
    const chosen = localStorage.getItem("sluice-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch (_) {
    // Without storage, the theme follows the system.
  }
})();
