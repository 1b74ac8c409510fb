// Recent errors and events with their named reasons, live.

import { h, put, text } from "./dom.js";
import * as format from "./format.js";
import { badge, search, select, trouble } from "./parts.js";
import { Recent } from "./recent.js";
import { meaning } from "./reasons.js";
import { get as param, link, set } from "./state.js";

const SHOWN = 300;
const TONES = { "request-failed": "bad", cut: "warn", server: "warn", volume: "bad", certificate: "warn", reload: "good", purge: "good", order: "good",
  formatted: "off", "addresses-changed": "off", "reload-failed": "bad", "not-durable": "warn", "all-unhealthy": "bad", "in-use-again": "good", healthy: "good",
  "some-healthy": "good", reachable: "good", resolved: "good", returned: "good", obtained: "good" };

export function start(root, context) {
  const recent = new Recent(context.signal);
  let all = [];
  let held = null;
  const rows = h("tbody");
  const count = h("span.note");
  const kinds = h("span");
  const filter = search("Filter events", "Filter by text, reason, URL or client", param("find"), (find) => { set({ find }, true); draw(); });
  const hold = h("button", { type: "button", "aria-pressed": "false", onclick: () => {
    held = held ? null : all;
    hold.setAttribute("aria-pressed", String(held !== null));
    text(hold, held ? "Continue" : "Hold");
    draw();
  } }, "Hold");
  const box = h("div.card", h("div.scroll.tall", { tabindex: "0", role: "region", "aria-label": "Events, newest first" },
    h("table.rows.events", h("thead", h("tr", ["Time", "Kind", "Reason", "Event", "Client", "Times"].map((head, i) => h("th", { scope: "col", class: i === 5 ? "number" : i === 4 ? "large" : "" }, head)))), rows)));
  put(root, h("div.head", h("h1", "Errors and events"), h("div.buttons", kinds, hold)), h("div.head", filter, count), box);

  const showKinds = () => {
    const found = [...new Set(all.map((one) => one.kind))].sort();
    if (kinds.dataset.key === found.join()) return;
    kinds.dataset.key = found.join();
    put(kinds, select("Kind", [["", "All kinds"], ...found.map((kind) => [kind, kind])], param("kind"), (kind) => { set({ kind }, true); draw(); }));
  };
  const draw = () => {
    const wanted = param("find").toLowerCase();
    const list = (held || all).filter((one) => (!param("kind") || one.kind === param("kind")) && (!wanted || JSON.stringify([one.message, one.reason, one.url, one.client]).toLowerCase().includes(wanted)));
    const shown = list.slice(-SHOWN).reverse();
    if (shown.length === 0) put(rows, h("tr", h("td", { colspan: "6", class: "empty" }, all.length === 0 ? "Nothing has happened yet." : "No event matches.")));
    else put(rows, shown.map(row));
    text(count, `${shown.length} of ${all.length} events${held ? ", held" : ""}`);
  };
  let isFirst = true;
  context.every(2, async () => {
    const isChanged = await recent.load();
    if (context.signal.aborted) return;
    if (recent.error && all.length === 0) {
      put(box, trouble(recent.error, "list of events"));
      return;
    }
    if (!isChanged && !isFirst) return;
    isFirst = false;
    all = recent.list;
    showKinds();
    if (!held) draw();
  });
  context.onParams(() => true);
}

/** Repeats of a failure may differ in the query, and many at a time in the whole URL: only the last one's is known. */
function eventUrl(one) {
  const url = h("a.event-url.mono", { href: link("xray", { url: one.url }) }, one.url);
  return h("div", one.count > 1 ? { title: "The last one's URL. Earlier ones had the same reason, and may have had other URLs." } : null, one.count > 1 ? h("span.note", "last: ") : null, url);
}

function row(one) {
  return h("tr",
    h("th", { scope: "row" }, h("time", { datetime: new Date(one.time).toISOString() }, format.moment(one.time / 1000))),
    h("td", badge(one.kind, TONES[one.reason] || TONES[one.kind])),
    h("td", one.reason ? h("code", { title: meaning(one.reason) }, one.reason) : ""),
    h("td.wrap", one.message, one.url ? eventUrl(one) : null),
    h("td.large", one.client ? `${one.count > 1 ? "last: " : ""}${one.client}` : ""),
    h("td.number", one.count > 1 ? `×${format.count(one.count)}` : "1"));
}
