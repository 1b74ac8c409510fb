// The page: its bar, its views, and the state that they share.

import { backoff, get, hasToken, onUnauthorized, setToken, wait } from "./api.js";
import { loadLibrary, recolor, refreshCharts } from "./chart.js";
import { Context } from "./context.js";
import { forgetColors, h, put, say, svg, text } from "./dom.js";
import { forgetCatalog, loadCatalog } from "./metrics.js";
import * as overview from "./overview.js";
import { choice, choose, failed, select, toast } from "./parts.js";
import * as state from "./state.js";

/** The views: path, name, picture, and the module, which is loaded when it is first shown. */
const VIEWS = [
  ["overview", "Overview", "M3 13h4v7H3zM10 8h4v12h-4zM17 3h4v17h-4z", async () => overview],
  ["routes", "Routes", "M4 5h10l4 3-4 3H4zM20 13H10l-4 3 4 3h10z", () => import("./routes.js")],
  ["caches", "Caches", "M12 3c5 0 8 1.5 8 3.2S17 9.5 12 9.5 4 8 4 6.2 7 3 12 3zM4 9c1.5 1.5 4.5 2.2 8 2.2S18.5 10.5 20 9v4c0 1.8-3 3.2-8 3.2S4 14.8 4 13zM4 15.5c1.5 1.5 4.5 2.2 8 2.2s6.5-.7 8-2.2V18c0 1.7-3 3-8 3s-8-1.3-8-3z", () => import("./caches.js")],
  ["upstreams", "Upstreams", "M4 4h16v6H4zM4 14h16v6H4zM7 6.2h2v1.6H7zM7 16.2h2v1.6H7z", () => import("./upstreams.js")],
  ["connections", "Connections", "M9 7V3h2v4h2V3h2v4h2v4c0 2.5-1.7 4.5-4 4.9V21h-2v-5.1C8.7 15.5 7 13.5 7 11V7z", () => import("./connections.js")],
  ["events", "Events", "M12 2 1.5 21h21zM11 9h2v6h-2zM11 16.5h2v2h-2z", () => import("./events.js")],
  ["top", "Top URLs", "M4 5h16v3H4zM4 10.5h11v3H4zM4 16h7v3H4z", () => import("./top.js")],
  ["xray", "X-ray", "M10 3a7 7 0 1 1-4.5 12.4L2 19l1.5 1.5L7 17M10 5.2a4.8 4.8 0 1 0 0 9.6 4.8 4.8 0 0 0 0-9.6z", () => import("./xray.js")],
];
/** Views without a period. */
const UNTIMED = new Set(["events", "top", "xray"]);
const THEMES = [["", "Auto"], ["light", "Light"], ["dark", "Dark"]];

const shared = { settings: null };
let context = null;
let shown = "";

const icon = (path) => svg("svg", { viewBox: "0 0 24 24", "aria-hidden": "true" }, svg("path", { d: path, "fill-rule": "evenodd" }));

function showNavigation() {
  const list = h("ul", VIEWS.map(([path, name, picture]) => h("li",
    h("a", { href: state.link(path), "aria-current": path === state.view() ? "page" : null }, icon(picture), h("span", name)))));
  const nav = document.getElementById("views");
  const focused = [...nav.querySelectorAll("a")].indexOf(document.activeElement);
  put(nav, list);
  const links = nav.querySelectorAll("a");
  if (focused >= 0) links[focused]?.focus();
  nav.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
}

const ranges = choice("Range", state.RANGES.map(([key, , full]) => [key, key, full]), "", (key) => state.set({ range: key, from: "", to: "" }));
const compare = select("Compare with", state.COMPARISONS.map(([key, name]) => [key, key ? `vs. ${name}` : "Compare …"]), state.get("compare"), (key) => state.set({ compare: key }));
const live = h("button", { type: "button", class: "live", onclick: () => toggleLive() });
const theme = select("Theme", THEMES, chosenTheme(), setTheme);
const copy = h("button", { type: "button", class: "quiet", title: "Copy a link to exactly this view and period", onclick: () => copyLink() }, "Copy link");
const logout = h("button", { type: "button", class: "quiet", hidden: true, onclick: () => { setToken(""); location.reload(); } }, "Log out");
let streamState = "";
let hadGap = false;

function toggleLive() {
  const { from, to, live: isLive } = state.period();
  state.set(isLive ? { range: "", from: String(from), to: String(to) } : { from: "", to: "" });
}

async function copyLink() {
  const url = state.fixedLink();
  try {
    await navigator.clipboard.writeText(url);
    toast("The link to this view and period is in the clipboard.");
  } catch {
    // Without access to the clipboard, the address of the page becomes the link.
    location.href = url;
    toast("The address of the page is now the link to this view and period.");
  }
}

function setTheme(chosen) {
  try {
    chosen ? localStorage.setItem("sluice-theme", chosen) : localStorage.removeItem("sluice-theme");
  } catch {
    // Without storage, the theme follows the system.
  }
  dispatchEvent(new Event("sluice-choose"));
}

function chosenTheme() {
  try {
    return localStorage.getItem("sluice-theme") || "";
  } catch {
    return "";
  }
}

function showTools() {
  const { live: isLive, name } = state.period();
  choose(ranges, state.RANGES, isLive ? name : "");
  for (const one of [ranges.parentElement, compare, live]) one.hidden = UNTIMED.has(state.view());
  compare.value = state.get("compare");
  live.setAttribute("aria-pressed", String(isLive));
  live.className = `live ${isLive ? streamState || "live" : "paused"}`;
  text(live, !isLive ? "Paused" : streamState === "lost" ? "Reconnecting" : "Live");
  live.title = isLive ? "Stop at this period" : "Follow new values";
  logout.hidden = !hasToken();
}

function leave() {
  context?.end();
  context = null;
}

async function show() {
  const wanted = VIEWS.find(([path]) => path === state.view()) || VIEWS[0];
  const isFirst = shown === "";
  shown = wanted[0];
  leave();
  const mine = new Context(shared);
  context = mine;
  const main = document.getElementById("main");
  try {
    const module = await wanted[3]();
    if (context !== mine) return;
    main.textContent = "";
    main.className = `view-${wanted[0]}`;
    document.title = `${wanted[1]} – Sluice`;
    module.start(main, mine);
  } catch (error) {
    if (context === mine) put(main, h("h1", wanted[1]), failed(error));
  }
  if (!isFirst) {
    scrollTo(0, 0);
    main.focus({ preventScroll: true });
    say(wanted[1]);
  }
}

function changed(names) {
  showNavigation();
  showTools();
  if (names.has("view")) {
    show();
    return;
  }
  if (["range", "from", "to", "compare"].some((name) => names.has(name))) context?.periodChanged();
  if (names.has("hide")) refreshCharts();
  const own = new Set([...names].filter((name) => !["range", "from", "to", "compare", "hide"].includes(name)));
  if (own.size > 0 && !context?.paramsChanged(own)) show();
}

let loading = null;

/** Loads the settings, and tries again until that succeeds: without a role, views have no buttons for orders. */
async function loadSettings() {
  loading?.abort();
  loading = new AbortController();
  const { signal } = loading;
  const pauses = backoff();
  for (;;) {
    const found = await get("settings", {}, signal).catch(() => null);
    if (signal.aborted) return;
    if (found) return showSettings(found);
    await wait(pauses.next(), signal);
  }
}

function showSettings(settings) {
  const isOther = shared.settings?.role !== settings.role;
  shared.settings = settings;
  const { hostname, version, role } = shared.settings;
  text(document.getElementById("host"), hostname || "");
  document.getElementById("host").title = `Sluice ${version || ""}`;
  document.documentElement.dataset.role = role || "operator";
  context?.onSettings?.();
  if (isOther) context?.runAll();
}

/** Loads what another process of the server may have changed. */
function reload() {
  forgetCatalog();
  loadSettings();
  loadCatalog();
}

/** Marks the first drawn chart, which tests measure. */
function markFirstView() {
  if (performance.getEntriesByName("first-view").length === 0) performance.mark("first-view");
}

function begin() {
  put(document.getElementById("tools"), h("div.tool-row", ranges), h("div.tool-row", live, compare, copy, theme, logout));
  document.getElementById("skip").addEventListener("click", (event) => {
    event.preventDefault();
    document.getElementById("main").focus();
  });
  onUnauthorized(async (isRefused) => (await import("./login.js")).login(isRefused));
  addEventListener("sluice-drawn", markFirstView, { once: true });
  state.onChange(changed);
  addEventListener("sluice-stream", (event) => {
    if (event.detail !== "live") hadGap = true;
    else if (hadGap) {
      hadGap = false;
      reload();
    }
    const now = ["ended", "busy"].includes(event.detail) ? "live" : event.detail;
    if (now === streamState) return;
    streamState = now;
    showTools();
  });
  document.addEventListener("visibilitychange", () => { if (!document.hidden) reload(); });
  addEventListener("sluice-theme", () => { forgetColors(); recolor(); });
  showNavigation();
  showTools();
  show();
  loadLibrary();
  loadSettings();
  loadCatalog();
}

begin();
