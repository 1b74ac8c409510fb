// The routes: a table of all of them, and the history of one.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { RATIOS, ROUTE_OUTCOMES, existing, line, loadCatalog, percentiles, rowShares } from "./metrics.js";
import { OUTCOME_SERIES, percentileSeries } from "./overview.js";
import { cellBar, choice, choose, note, search, section, trouble } from "./parts.js";
import { get as param, link, period, set } from "./state.js";
import { Table, numbers } from "./table.js";

const TABLE_SERIES = [...ROUTE_OUTCOMES, "responses_4xx", "responses_5xx", "request_duration_p95", "request_duration_p99"];
const SCOPES = [["route", "Routes"], ["site", "Sites"]];
/** The article's six series, which tell where the time of a request goes. */
const DURATIONS = [
  ["connect_duration", "Upstream connect", "seconds"],
  ["header_duration", "Upstream header", "seconds"],
  ["response_duration", "Upstream response", "seconds"],
  ["request_duration", "Request", "seconds"],
  ["body_size", "Body size", "bytes"],
];

const routeName = (row) => format.routeName(row.member);
const ratioTone = (ratio) => (ratio >= 0.8 ? "hit" : ratio >= 0.4 ? "miss" : "error");
const errorShare = (row, status = 5) => (row.requests > 0 ? (row[`responses_${status}xx`] ?? 0) / row.requests : null);
/** Unknown for bytes neither of an origin nor of a cache, such as those of error pages. */
const offload = (row) => (row.body_bytes > 0 && (row.upstream_bytes > 0 || rowShares(row).good > 0) ? 1 - (row.upstream_bytes ?? 0) / row.body_bytes : null);

const LARGE = { class: "large" };
const HIGHEST = { help: "Request time: the highest percentile of a point of the history" };

function columns(scope) {
  return [
    { key: "member", label: scope === "site" ? "Site" : "Route", sort: (row) => row.member, cell: (row) => h("a.name-cell", { href: link("routes", { [scope]: row.member }), title: row.member }, routeName(row)) },
    numbers("requests", "Requests", (row) => row.requests, format.rate),
    numbers("ratio", "Hit ratio", (row) => rowShares(row).ratio, (ratio) => [ratio === null ? null : cellBar(ratio, ratioTone(ratio)), h("span.cell-value", format.share(ratio))]),
    numbers("p95", "p95", (row) => row.request_duration_p95, format.seconds, HIGHEST),
    numbers("p99", "p99", (row) => row.request_duration_p99, format.seconds, { ...LARGE, ...HIGHEST }),
    numbers("4xx", "4xx", (row) => errorShare(row, 4), format.share, LARGE),
    numbers("5xx", "5xx", (row) => errorShare(row), (share) => h("span", { class: share > 0.01 ? "bad-text" : null }, format.share(share))),
    numbers("bytes", "To clients", (row) => row.body_bytes, format.bytesRate, LARGE),
    numbers("origin", "From origin", (row) => row.upstream_bytes, format.bytesRate, LARGE),
    numbers("offload", "Offload", offload, format.share, { ...LARGE, help: "Bytes to clients that no origin sent. Negative: the origin sends whole blocks, of which clients may want a part." }),
  ];
}

export function start(root, context) {
  if (param("route")) detail(root, context, "route", param("route"));
  else if (param("site")) detail(root, context, "site", param("site"));
  else list(root, context);
}

function list(root, context) {
  let scope = param("scope") === "site" ? "site" : "route";
  let rows = [];
  const box = h("div.card");
  const shown = h("p.note", { role: "status" });
  const filter = search("Filter by name", "Filter by host or path", param("find"), (find) => { set({ find }, true); fill(); });
  let table = null;
  const begin = () => {
    table = new Table({ label: scope === "site" ? "Sites" : "Routes", columns: columns(scope), key: (row) => row.member, sort: param("sort", "requests"), descending: param("order") !== "up", height: 640,
      onSort: (key, descending) => set({ sort: key, order: descending ? "" : "up" }, true), empty: "No name contains this text." });
    put(box, table.root);
  };
  const fill = () => {
    const wanted = filter.value.toLowerCase();
    table.set(rows, wanted ? (row) => `${row.member} ${routeName(row)}`.toLowerCase().includes(wanted) : null);
    put(shown, wanted ? `${table.length} of ${rows.length}` : `${rows.length} in all`, ", means over the period; p95 and p99: the highest of any point");
  };
  const load = async () => {
    const { from, to, seconds, live } = period();
    try {
      await loadCatalog();
      const series = existing(scope, TABLE_SERIES);
      const data = await get("history", { scope, members: "*", series: series.join(","), top: 5000, ...(live ? { from: -seconds } : { from, to }) }, context.signal);
      rows = data.members || [];
      if (!box.contains(table.root)) put(box, table.root);
      fill();
    } catch (error) {
      if (!context.signal.aborted) put(box, trouble(error, "history of routes"));
    }
  };
  const scopes = choice("Kind", SCOPES, scope, (value) => set({ scope: value === "site" ? "site" : "" }, true));
  context.onParams((names) => {
    if (names.has("route") || names.has("site")) return false;
    if (names.has("scope")) {
      scope = param("scope") === "site" ? "site" : "route";
      choose(scopes, SCOPES, scope);
      rows = [];
      begin();
      load();
    }
    return true;
  });
  put(root, h("div.head", h("h1", "Routes"), scopes), h("div.head", filter, shown), box);
  begin();
  context.onPeriod(load);
  context.every(5, load);
}

function detail(root, context, scope, member) {
  const series = [...ROUTE_OUTCOMES, "responses_2xx", "responses_3xx", "responses_4xx", "responses_5xx", ...DURATIONS.flatMap(([name]) => percentiles(name))];
  const feed = context.feed({ scope, member, series, streamed: true });
  const chart = (options) => context.chart({ feed, ...options });
  put(root,
    h("div", h("p.note", h("a", { href: link("routes", { scope: scope === "site" ? "site" : "" }) }, "← All routes")), h("h1.mono-title", format.routeName(member))),
    h("h2.hidden", "Traffic"),
    h("div.grid",
      chart({ id: "r-traffic", title: "Requests by outcome", stacked: true, series: OUTCOME_SERIES, height: 220, wide: true }),
      chart({ id: "r-ratio", title: "Hit ratio", unit: "share", series: RATIOS }),
      chart({ id: "r-status", title: "Errors", series: [
        line("4xx", "4xx", "miss", "responses_4xx"), line("5xx", "5xx", "error", "responses_5xx")] })),
    section("Where the time goes",
      note("Median, 95th and 99th percentile and maximum of each; a point of several steps shows the highest of them. Connect, header and response are times of the upstream; request is what the client sees."),
      h("div.grid.three",
        DURATIONS.map(([name, title, unit]) => chart({ id: `r-${name}`, title, unit, log: true, series: percentileSeries(name) })),
        chart({ id: "r-upstream", title: "Upstream requests", series: [line("upstream", "to the upstream", "collapsed", "upstream_requests"), line("requests", "of clients", "hit")] }),
        chart({ id: "r-bytes", title: "Bytes", unit: "bytesRate", series: [
          line("out", "to clients", "hit", "body_bytes"), line("in", "from the upstream", "miss", "upstream_bytes")] }))));
}
