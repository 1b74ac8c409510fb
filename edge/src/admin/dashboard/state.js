// The state of the page, which is the fragment of its URL: `#/view?range=15m&compare=prev&hide=…`.
// A link to the page therefore shows exactly the same view.

export const RANGES = [
  ["1m", 60, "1 minute"],
  ["5m", 300, "5 minutes"],
  ["15m", 900, "15 minutes"],
  ["1h", 3600, "1 hour"],
  ["6h", 21600, "6 hours"],
  ["24h", 86400, "24 hours"],
  ["7d", 604800, "7 days"],
];
export const COMPARISONS = [
  ["", "nothing"],
  ["prev", "the time before"],
  ["1d", "a day before"],
];
const DEFAULT_RANGE = "15m";
/** Parameters that stay when the view changes. */
const SHARED = ["range", "from", "to", "compare"];

const listeners = new Set();
let current = parse(location.hash);

function parse(hash) {
  const text = hash.startsWith("#/") ? hash.slice(2) : "";
  const at = text.indexOf("?");
  const view = at < 0 ? text : text.slice(0, at);
  return { view: view || "overview", params: new URLSearchParams(at < 0 ? "" : text.slice(at + 1)) };
}

function write(view, params) {
  const query = params.toString();
  return `#/${view}${query ? `?${query}` : ""}`;
}

export const view = () => current.view;
export const get = (name, otherwise = "") => current.params.get(name) ?? otherwise;

/** Returns the link to a view that keeps range and comparison. */
export function link(name, extra = {}) {
  const params = new URLSearchParams();
  for (const key of SHARED) if (current.params.has(key)) params.set(key, current.params.get(key));
  for (const [key, value] of Object.entries(extra)) if (value) params.set(key, value);
  return write(name, params);
}

/** Changes parameters. An empty value removes one. `keep` adds no entry to the browser's history. */
export function set(changes, keep = false) {
  const params = new URLSearchParams(current.params);
  for (const [key, value] of Object.entries(changes)) value ? params.set(key, value) : params.delete(key);
  const hash = write(current.view, params);
  if (hash === location.hash) return;
  history[keep ? "replaceState" : "pushState"](null, "", hash);
  moved();
}

/** Calls a function when the state changes, with the names of the parameters that differ. */
export function onChange(listener) {
  listeners.add(listener);
}

function moved() {
  const before = current;
  current = parse(location.hash);
  const names = new Set([...before.params.keys(), ...current.params.keys()]);
  const changed = new Set([...names].filter((name) => before.params.get(name) !== current.params.get(name)));
  if (before.view !== current.view) changed.add("view");
  if (changed.size > 0) for (const listener of listeners) listener(changed);
}

addEventListener("hashchange", () => {
  if (location.hash.startsWith("#/") || location.hash === "") moved();
});

/** Returns the period that is shown: seconds, and the end if it is not now. */
export function period() {
  const from = Number(get("from"));
  const to = Number(get("to"));
  if (from > 0 && to > from) return { seconds: Math.min(to - from, 604800), from, to, live: false, name: "" };
  const [name, length] = RANGES.find(([key]) => key === get("range", DEFAULT_RANGE)) || RANGES[2];
  const now = Math.floor(Date.now() / 1000);
  return { seconds: length, from: now - length, to: now, live: true, name };
}

/** Whether the page chose the period, since the link names none. */
export const isDefaultPeriod = () => !get("range") && period().live;

/** Returns by how many seconds the compared period is earlier, or 0. */
export function comparison() {
  const chosen = get("compare");
  return chosen === "prev" ? period().seconds : chosen === "1d" ? 86400 : 0;
}

/** Returns the names of hidden series of one chart. */
export function hidden(chart) {
  const all = get("hide").split(",").filter(Boolean);
  return new Set(all.filter((one) => one.startsWith(`${chart}.`)).map((one) => one.slice(chart.length + 1)));
}

/** Shows or hides one series of a chart. */
export function toggleHidden(chart, key) {
  const all = new Set(get("hide").split(",").filter(Boolean));
  const name = `${chart}.${key}`;
  if (!all.delete(name)) all.add(name);
  set({ hide: [...all].join(",") }, true);
}

/** Returns the link that shows this period again later, too. */
export function fixedLink() {
  const { from, to } = period();
  const params = new URLSearchParams(current.params);
  params.delete("range");
  params.set("from", String(Math.round(from)));
  params.set("to", String(Math.round(to)));
  return location.href.split("#")[0] + write(current.view, params);
}
