// The URLs with most requests, bytes, misses or the highest latency.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { cellBar, choice, choose, trouble } from "./parts.js";
import { get as param, link, set } from "./state.js";
import { Table } from "./table.js";

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
  const box = h("div", { class: "card" });
  const text = h("p", { class: "note" });
  let table = null;
  const begin = () => {
    table = new Table({ label: "URLs", columns: columns(() => most, by()), key: (row) => row.url, sort: { requests: "requests", bytes: "bytes", misses: "misses", latency: "latency" }[by()], height: 720, empty: "No request has been sampled in this time." });
    put(box, table.root);
    put(text, NOTES[by()], " Counts are estimates from samples; signatures and tokens in URLs are masked.");
  };
  let most = { requests: 1, bytes: 1, misses: 1, latency: 1 };
  const load = async () => {
    try {
      const data = await get("top", { by: by(), minutes: minutes(), n: 200 }, context.signal);
      const rows = data.urls || [];
      const max = (of) => Math.max(1e-9, ...rows.map((row) => of(row) ?? 0));
      most = { requests: max((row) => row.requests), bytes: max((row) => row.bytes), misses: max((row) => row.misses), latency: max((row) => row.latency_ms) };
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
  put(root, h("div", { class: "head" }, h("h1", null, "Top URLs"), h("div", { class: "buttons" }, orders, periods)), text, box);
  begin();
  context.every(5, load);
}

const value = (shown, size = "") => h("span", { class: `cell-value ${size}` }, shown);

/** A URL with a masked part, or one that was cut, names no object, so it has no link. */
function urlCell(url) {
  const isWhole = !url.includes("***") && !url.endsWith("...");
  return isWhole ? h("a", { class: "name-cell mono", href: link("xray", { url }), title: url }, url)
    : h("span", { class: "name-cell mono", title: `${url}\nNot the whole URL, so the X-ray can't find it.` }, url);
}

function columns(most, by) {
  // The error is that of the measure by which the list is ordered.
  const about = (key, row, shown) => (key === by && row.error > 0 && row.value > 0 ? h("span", { title: `at most ${(by === "bytes" ? format.bytes : format.count)(row.error)} too many` }, shown) : shown);
  return [
    { key: "url", label: "URL", sort: (row) => row.url, cell: (row) => urlCell(row.url) },
    { key: "requests", label: "Requests", number: true, sort: (row) => row.requests, cell: (row) => [cellBar(row.requests / most().requests, "hit"), value(about("requests", row, format.count(row.requests)))] },
    { key: "misses", label: "Misses", number: true, sort: (row) => row.misses, cell: (row) => [cellBar(row.misses / most().misses, "miss"), value(about("misses", row, format.count(row.misses)))] },
    { key: "ratio", label: "Missed", number: true, class: "large", sort: (row) => (row.requests > 0 ? row.misses / row.requests : null), cell: (row) => format.share(row.requests > 0 ? row.misses / row.requests : null) },
    { key: "bytes", label: "Bytes", number: true, sort: (row) => row.bytes, cell: (row) => [cellBar(row.bytes / most().bytes, "collapsed"), value(about("bytes", row, format.bytes(row.bytes)), "wide")] },
    { key: "latency", label: "Latency", number: true, sort: (row) => row.latency_ms, cell: (row) => format.millis(row.latency_ms) },
  ];
}
