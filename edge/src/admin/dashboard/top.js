// The URLs with most requests, bytes, misses or the highest latency.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { cellBar, choice, choose, trouble } from "./parts.js";
import { get as param, link, set } from "./state.js";
import { Table, numbers } from "./table.js";

const BY = [["requests", "Requests"], ["bytes", "Bytes"], ["misses", "Misses"], ["latency", "Latency"]];
const MINUTES = [["1", "1 min", "1 minute"], ["5", "5 min", "5 minutes"], ["15", "15 min", "15 minutes"], ["60", "1 h", "1 hour"]];
const NOTES = {
  requests: "The URLs that were requested most.",
  bytes: "The URLs with most bytes to clients.",
  misses: "The URLs with most requests that the origin had to answer: candidates for longer lifetimes.",
  latency: "The URLs with the slowest responses.",
};

export function start(root, context) {
  const by = () => (BY.some(([key]) => key === param("by")) ? param("by") : "requests");
  const minutes = () => (MINUTES.some(([key]) => key === param("minutes")) ? param("minutes") : "5");
  const orders = choice("Order by", BY, by(), (key) => set({ by: key, sort: "" }, true));
  const periods = choice("Time", MINUTES, minutes(), (key) => set({ minutes: key }, true));
  const box = h("div.card");
  const text = h("p.note");
  let table = null;
  const begin = () => {
    table = new Table({ label: "URLs", columns: columns(() => most, by()), key: (row) => row.url, sort: by(), height: 720, empty: "No request has been sampled in this time." });
    put(box, table.root);
    put(text, NOTES[by()], " Counts are estimates from samples; signatures and tokens in URLs are masked.");
  };
  let most = { requests: 1, bytes: 1, misses: 1 };
  const load = async () => {
    try {
      const data = await get("top", { by: by(), minutes: minutes(), n: 200 }, context.signal);
      const rows = data.urls || [];
      const max = (key) => Math.max(1e-9, ...rows.map((row) => row[key] ?? 0));
      most = { requests: max("requests"), bytes: max("bytes"), misses: max("misses") };
      if (!box.contains(table.root)) put(box, table.root);
      table.set(rows);
    } catch (error) {
      if (!context.signal.aborted) put(box, trouble(error, "list of URLs"));
    }
  };
  context.onParams((names) => {
    if (names.has("by")) begin();
    choose(orders, BY, by());
    choose(periods, MINUTES, minutes());
    load();
    return true;
  });
  put(root, h("div.head", h("h1", "Top URLs"), h("div.buttons", orders, periods)), text, box);
  begin();
  context.every(5, load);
}

/** A URL with a masked part, or one that was cut, names no object, so it has no link. */
function urlCell(url) {
  const isWhole = !url.includes("***") && !url.endsWith("...");
  return isWhole ? h("a.name-cell.mono", { href: link("xray", { url }), title: url }, url)
    : h("span.name-cell.mono", { title: `${url}\nNot the whole URL, so the X-ray can't find it.` }, url);
}

function columns(most, by) {
  // The error is that of the measure by which the list is ordered.
  const about = (key, row, write) => (key === by && row.error > 0 && row.value > 0 ? `at most ${write(row.error)} too many` : null);
  const withBar = (key, tone, write, size = "") => (value, row) => [cellBar(value / most()[key], tone), h(`span.cell-value${size}`, { title: about(key, row, write) }, write(value))];
  return [
    { key: "url", label: "URL", sort: (row) => row.url, cell: (row) => urlCell(row.url) },
    numbers("requests", "Requests", (row) => row.requests, withBar("requests", "hit", format.count)),
    numbers("misses", "Misses", (row) => row.misses, withBar("misses", "miss", format.count)),
    numbers("ratio", "Missed", (row) => (row.requests > 0 ? row.misses / row.requests : null), format.share, { class: "large" }),
    numbers("bytes", "Bytes", (row) => row.bytes, withBar("bytes", "collapsed", format.bytes, ".wide")),
    numbers("latency", "Latency", (row) => row.latency_ms, format.millis),
  ];
}
