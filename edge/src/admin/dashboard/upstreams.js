// Upstreams and their servers: state, orders, durations, and the TCP view.

import { get, post } from "./api.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { line, mean, minus, over, percentiles } from "./metrics.js";
import { percentileSeries } from "./overview.js";
import { ask, badge, facts, failed, note, order, refresh, toast } from "./parts.js";
import { reuse } from "./reuse.js";
import { get as param, set } from "./state.js";
import { plainTable } from "./table.js";

const SERIES = ["requests", "failures", "connects", "reuses", "idle", "busy", "bytes_in", "bytes_out", "http2_connections", "http2_streams",
  "tcp_samples", "tcp_window_bytes", "tcp_in_flight_bytes", "tcp_retransmits",
  ...percentiles("connect_duration"), ...percentiles("tls_handshake_duration"), ...percentiles("header_duration"), ...percentiles("response_duration"), ...percentiles("tcp_rtt")];
/** States of a server that the order "up" changes. */
const RAISED = new Set(["drain", "down", "ejected"]);
const ORDERS = [
  ["up", "Up", "Send requests to it again?", "The server gets its share of the requests."],
  ["drain", "Drain", "Drain it?", "The server gets no new requests, except of clients that stick to it by their cookie. Requests in progress end as usual."],
  ["down", "Down", "Take it down?", "The server gets no new requests at all. Requests in progress end as usual."],
];

const RTT_HELP = "The kernel's smoothed value includes delayed acknowledgements of the server: up to 40 ms while it prepares a response.";

/** Orders wait while another one is asked about, so that the list does not change under the pointer. */
let asking = false;

export function start(root, context) {
  const list = h("div.block");
  const detail = h("div.block");
  let [shown, upstream] = ["", ""];
  put(root, h("h1", "Upstreams and servers"), list, detail, reuse(context, () => upstream));
  const load = async () => {
    if (asking) return;
    const upstreams = await get("servers", {}, context.signal);
    if (Object.keys(upstreams).length === 0) put(list, h("div.card", note("No upstream is configured.")));
    else showAll(list, upstreams, context, load);
    const all = Object.entries(upstreams).flatMap(([name, upstream]) => upstream.servers.map((server) => ({ name, server })));
    const chosen = all.find((one) => `${one.name} ${one.server.address}` === param("server")) || all.reduce((most, one) => (most && most.server.requests >= one.server.requests ? most : one), null);
    if (!chosen) return;
    const key = `${chosen.name} ${chosen.server.address}`;
    if (key !== shown) {
      [shown, upstream] = [key, chosen.name];
      context.drop();
      showServer(detail, context, chosen.name, chosen.server);
    }
    detail.fresh?.(chosen.server);
  };
  const again = context.every(2, load, (error) => put(list, failed(error)));
  context.onParams((names) => {
    if (names.has("server")) again();
    return names.has("server");
  });
}

function showAll(box, upstreams, context, load) {
  for (const [name, upstream] of Object.entries(upstreams)) {
    let card = [...box.children].find((one) => one.dataset.name === name);
    if (!card) {
      card = h("section.card", { "aria-label": `Upstream ${name}`, "data-name": name });
      box.append(card);
    }
    const focus = card.contains(document.activeElement) ? document.activeElement.dataset.id : null;
    const left = card.querySelector(".scroll")?.scrollLeft ?? 0;
    refresh(card, JSON.stringify([upstream.servers.map(essentials), context.isOperator, param("server")]), () => upstreamCard(name, upstream, context, load));
    if (left > 0) card.querySelector(".scroll").scrollLeft = left;
    if (focus) focusOn(card, focus);
  }
  for (const card of [...box.children]) if (!(card.dataset.name in upstreams)) card.remove();
}

/** Gives the focus to a button. In place of "Up", which is gone when the server is up, "Drain" gets it. */
function focusOn(box, id) {
  const find = (one) => box.querySelector(`[data-id="${CSS.escape(one)}"]`);
  (find(id) ?? find(id.replace(/^up /, "drain ")))?.focus({ preventScroll: true });
}

const essentials = (one) => [one.address, one.name, one.state, one.why, one.weight, one.backup, one.idle, one.busy, one.requests, one.failures, one.header_duration, one.tcp_rtt, one.trial_in_s];

function upstreamCard(name, upstream, context, load) {
  const up = upstream.servers.filter((one) => one.state === "up").length;
  return [h("div.head", h("h2", name), badge(`${up} of ${upstream.servers.length} up`, up === upstream.servers.length ? "good" : up > 0 ? "warn" : "bad")),
    plainTable(`Servers of ${name}`, ["Server", "State", ...(context.isOperator ? ["Orders"] : []), "Weight", "In use", "Idle", "Requests", "Failed", "Header, median", "p99", ["Round trip", RTT_HELP]], upstream.servers.map((server) => serverRow(name, server, context, load)),
      (context.isOperator ? [3, 4, 5, 6, 7, 8, 9, 10] : [2, 3, 4, 5, 6, 7, 8, 9]), "stacked labelled")];
}

function serverRow(upstream, server, context, load) {
  const key = `${upstream} ${server.address}`;
  const label = server.name && server.name !== server.address ? `${server.name} (${server.address})` : server.address;
  return [
    h("button", { type: "button", class: "linkish", "data-id": `show ${key}`, "aria-pressed": String(param("server") === key), title: "Show its history", onclick: () => set({ server: key }, true) }, label, server.backup ? h("span.note", " backup") : null),
    h("span.state", badge(server.state), " ", server.why ? h("span.note.why-state", { title: server.why }, server.why) : null, server.trial_in_s ? h("span.note", `, trial in ${format.seconds(server.trial_in_s)}`) : null),
    ...(context.isOperator ? [h("span.choice.orders", { role: "group", "aria-label": `Orders about ${server.address}` }, ORDERS.filter(([value]) => value !== "up" || RAISED.has(server.state)).map((one) => orderButton(upstream, server, one, load)))] : []),
    String(server.weight), format.count(server.busy), format.count(server.idle), format.count(server.requests),
    h("span", { class: server.failures > 0 ? "warn-text" : "" }, format.count(server.failures)),
    format.micros(server.header_duration?.p50_us), format.micros(server.header_duration?.p99_us), format.micros(server.tcp_rtt?.p50_us),
  ];
}

function orderButton(upstream, server, [value, label, question, detail], load) {
  const button = order(label, "", async () => {
    asking = true;
    const yes = await ask(`${server.address}: ${question}`, detail, label, value === "up" ? "primary" : "danger");
    asking = false;
    if (yes) {
      await post("servers", { upstream, server: server.address, set: value });
      toast(`${server.address} of ${upstream} is set to ${value}.`);
    }
    await load();
    // The list may have been built again while the question was open.
    if (document.activeElement === document.body) focusOn(document, `${value} ${upstream} ${server.address}`);
  });
  if (value !== "up") button.setAttribute("aria-pressed", String(server.state === value));
  button.title = detail;
  button.setAttribute("data-id", `${value} ${upstream} ${server.address}`);
  button.setAttribute("aria-label", `${label}: ${server.address}`);
  return button;
}

const perSample = (c, sum) => over(c(sum), c("tcp_samples"));
const firstUse = (c) => minus(c("requests"), c("reuses"));

function showServer(box, context, upstream, server) {
  const member = `${upstream} ${server.address}`;
  const feed = context.feed({ scope: "server", member, series: SERIES, streamed: true });
  const chart = (options) => context.chart({ feed, ...options });
  const times = (id, title, name) => chart({ id, title, unit: "seconds", log: true, series: percentileSeries(name) });
  const numbers = h("div.card");
  const reuse = h("p.note");
  put(box, h("h2", { id: "server-title" }, `${server.address} of ${upstream}`), numbers,
    h("div.grid.three",
      chart({ id: "s-requests", title: "Requests and failures", series: [
        line("requests", "requests", "hit"), line("failures", "failed", "error")] }),
      times("s-header", "Time until the head of the response", "header_duration"),
      times("s-response", "Time until the end of the response", "response_duration"),
      times("s-connect", "Time to connect", "connect_duration"),
      chart({ id: "s-connections", title: "Open connections", unit: "count", stacked: true, series: [
        line("busy", "in use", "hit"), line("idle", "idle", "other")] })),
    h("h2", "TCP view"), note("From the kernel's data about the connections (TCP_INFO), sampled after responses."),
    h("div.grid.three",
      chart({ id: "s-rtt", title: "Round trip", unit: "seconds", note: RTT_HELP, series: percentileSeries("tcp_rtt").slice(0, 3) }),
      chart({ id: "s-window", title: "Congestion window and bytes in flight", unit: "bytes", note: "In flight near the window: the network is the limit. Far below it: the application is.", series: [
        line("window", "window", "collapsed", (c) => perSample(c, "tcp_window_bytes")), line("flight", "in flight", "hit", (c) => perSample(c, "tcp_in_flight_bytes"))] }),
      chart({ id: "s-retransmits", title: "Retransmits", series: [line("retransmits", "segments sent again", "error", "tcp_retransmits")] })),
    h("h2", "Reuse of connections"), reuse,
    h("div.grid",
      chart({ id: "s-reuse", title: "First and later requests on a connection", stacked: true, series: [
        line("reused", "on a connection used before", "hit", "reuses"), line("new", "first on a connection", "miss", firstUse)] }),
      chart({ id: "s-per", title: "Requests per connection", unit: "count", series: [line("per", "requests for each one opened", "collapsed", (c) => over(c("requests"), c("connects")))] })));
  feed.onChange(() => showReuse(reuse, feed));
  box.fresh = (now) => put(numbers, serverFacts(now));
}

function showReuse(box, feed) {
  const [requests, reuses, connects] = [mean(feed.now("requests")), mean(feed.now("reuses")), mean(feed.now("connects"))];
  if (!(requests > 0) || reuses === null) {
    put(box, "No request was sent to this server in this period.");
    return;
  }
  put(box, `In this period ${format.share(reuses / requests)} of the requests used a connection that had carried others before`,
    connects > 0 ? `, ${format.count(requests / connects)} requests for each connection that was opened.` : ", and none was opened.");
}

function serverFacts(one) {
  const reasons = Object.entries(one.failures_by_reason || {}).sort((a, b) => b[1] - a[1]).slice(0, 6);
  return facts([
    ["State", badge(one.state)], ["Why", one.why], ["Requests", format.exact(one.requests)], ["Failed", format.exact(one.failures)],
    ["Connections opened", format.exact(one.connects)], ["HTTP/2 connections", format.exact(one.http2_connections)], ["Received", format.bytes(one.bytes_in)], ["Sent", format.bytes(one.bytes_out)],
    ["Failures by reason", reasons.length > 0 ? h("span", reasons.map(([reason, n]) => h("span.reason", h("code", reason), ` ${format.count(n)}`))) : null],
  ]);
}
