// Connections of clients, TLS, certificates, workers and the process.

import { get, post } from "./api.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { lift, line, plus } from "./metrics.js";
import { ask, badge, card, facts, failed, note, order, refresh, section, toast } from "./parts.js";
import { plainTable, showTable } from "./table.js";

const SERIES = ["connections_now", "http1_connections_now", "http2_connections_now", "connections_accepted", "connections_refused", "connections_over_ip", "connections_shed", "client_timeouts",
  "tls_handshakes", "tls_resumed", "tls_handshakes_failed", "tls_handshakes_now", "tls_memory_now", "requests_now", "http2_streams_now", "request_memory_now", "client_bytes_in", "client_bytes_out"];
const LAG = "loop_lag_p99";
const FAILURES = {
  tls_handshakes_late: "took longer than handshake_timeout", tls_handshakes_cut: "cut: too many at once", tls_failed_version: "only versions older than min_version", tls_failed_parameters: "no common cipher suite or group",
  tls_failed_unknown_name: "unknown host", tls_failed_no_certificate: "host without a certificate yet", tls_failed_protocol: "only unknown protocols", tls_failed_client_certificate: "client certificate missing or invalid",
  tls_failed_refused_by_client: "refused by the client", tls_failed_not_tls: "request in clear text", tls_failed_malformed: "broke the rules of TLS", tls_failed_evicted: "cut: limit of connections", tls_failed_closed: "closed by the client", tls_failed_internal: "Sluice failed",
};

export function start(root, context) {
  const feed = context.feed({ scope: "edge", series: SERIES, streamed: true });
  const chart = (options) => context.chart({ feed, ...options });
  const [workers, process, failures, certificates] = [h("div.card"), h("div.card"), h("div"), h("div.block")];
  put(root, h("h1", "Connections and TLS"), process, h("h2.hidden", "Charts"),
    h("div.grid.three",
      chart({ id: "k-open", title: "Open connections", unit: "count", stacked: true, series: [
        line("h2", "HTTP/2", "hit", "http2_connections_now"), line("h1", "HTTP/1", "collapsed", "http1_connections_now"),
        line("rest", "not begun", "other", (c) => lift((all, one, two) => Math.max(0, all - one - two), c("connections_now"), c("http1_connections_now"), c("http2_connections_now")))] }),
      chart({ id: "k-new", title: "New connections", series: [
        line("accepted", "accepted", "hit", "connections_accepted"),
        line("turned", "turned away or cut", "error", (c) => plus(c("connections_refused"), c("connections_over_ip"), c("connections_shed"))),
        line("slow", "too slow", "miss", "client_timeouts")] }),
      chart({ id: "k-requests", title: "In progress", unit: "count", series: [
        line("requests", "requests", "hit", "requests_now"), line("streams", "HTTP/2 streams", "collapsed", "http2_streams_now"), line("handshakes", "handshakes", "miss", "tls_handshakes_now")] }),
      chart({ id: "k-tls", title: "TLS handshakes", stacked: true, series: [
        line("resumed", "resumed", "hit", "tls_resumed"), line("full", "full", "collapsed", "tls_handshakes"), line("failed", "failed", "error", "tls_handshakes_failed")] }),
      chart({ id: "k-bytes", title: "Bytes of clients", unit: "bytesRate", series: [
        line("out", "sent", "hit", "client_bytes_out"), line("in", "received", "collapsed", "client_bytes_in")] }),
      chart({ id: "k-memory", title: "Memory of connections", unit: "bytes", series: [
        line("tls", "TLS", "collapsed", "tls_memory_now"), line("requests", "requests", "hit", "request_memory_now")] })),
    failures, section("Certificates", certificates), section("Workers", workers));
  const loop = workerLoop(workers);
  context.every(3, async () => {
    const [status, lags] = await Promise.all([get("status", {}, context.signal), loopLags(context.signal)]);
    put(process, processFacts(status));
    showFailures(failures, status.counters || {});
    loop(status, lags);
    showCertificates(certificates, status.certificates || {}, context);
  }, (error) => put(process, failed(error)));
}

function processFacts(status) {
  const { counters = {}, reload = {}, buffers = {}, process = {} } = status;
  return facts([
    ["Version", status.version], ["Process", String(status.pid)], ["Running for", format.span(status.uptime_s)], ["Configuration", `number ${reload.generation}`],
    ["Last reload", reload.last_error ? h("span.bad-text", reload.last_error) : null],
    ["Resident memory", process.resident_bytes ? format.bytes(process.resident_bytes) : null],
    ["Open connections", format.exact(counters.connections_now)], ["Accepted", format.exact(counters.connections_accepted)],
    ["Over connections_per_ip", format.exact(counters.connections_over_ip)], ["Closed to make room", format.exact(counters.connections_refused)],
    ["Buffers", buffers.limit ? `${format.bytes(buffers.bytes)} of ${format.bytes(buffers.limit)}` : null], ["Panics", counters.panics > 0 ? h("span.bad-text", format.exact(counters.panics)) : null],
    ["Log lines dropped", counters.log_lines_dropped > 0 ? format.exact(counters.log_lines_dropped) : null],
  ]);
}

function showFailures(box, counters) {
  const rows = Object.entries(FAILURES).map(([name, text]) => [text, counters[name] ?? 0]).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  const all = counters.tls_handshakes_failed ?? 0;
  refresh(box, JSON.stringify([rows, all]), () => (all === 0 ? null : card("Failed TLS handshakes since the start", rows.length === 0 ? note(`${format.exact(all)} failed.`)
    : plainTable("Failed TLS handshakes by reason", ["Reason", "Number", "Share"], rows.map(([text, n]) => [text, format.exact(n), format.share(n / all)]), [1, 2]))));
}

/** Returns the 99th percentile of each worker's loop lag, in the second of the last minute in which it was highest. */
async function loopLags(signal) {
  try {
    const { members } = await get("history", { scope: "worker", members: "*", series: LAG, from: -60, top: 5000 }, signal);
    return new Map(members.map((one) => [one.member, one[LAG]]));
  } catch {
    return new Map();
  }
}

/** Returns the function that shows the workers, with rates since its last call. */
function workerLoop(box) {
  let before = null;
  return (status, lags) => {
    const list = status.workers || [];
    const at = performance.now();
    const seconds = before ? (at - before.at) / 1000 : 0;
    const rate = (i, name) => (seconds > 0 && before.list[i] ? Math.max(0, ((list[i][name] ?? 0) - (before.list[i][name] ?? 0)) / seconds) : null);
    const hasCpu = list.some((one) => one.cpu_ms !== undefined);
    showTable(box, "List of workers", ["Worker", "Connections", "Requests", "In progress", ...(hasCpu ? ["CPU"] : []), ...(lags.size > 0 ? ["Loop lag, highest p99 of a minute"] : []), "Sent"], list.map((one, i) => [
      String(i), format.exact(one.connections_now), format.rate(rate(i, "requests")), format.exact(one.requests_now),
      ...(hasCpu ? [format.share(rate(i, "cpu_ms") === null ? null : rate(i, "cpu_ms") / 1000)] : []), ...(lags.size > 0 ? [format.seconds(lags.get(String(i)))] : []), format.bytesRate(rate(i, "client_bytes_out"))]), [1, 2, 3, 4, 5, 6, 7]);
    before = { at, list };
  };
}

function showCertificates(box, all, context) {
  const list = all.list || [];
  const now = all.now_unix_s ?? Date.now() / 1000;
  const day = Math.floor(now / 60);
  refresh(box, JSON.stringify([list, day, context.isOperator]), () => h("div.card", list.length === 0 ? note("No certificate is configured.") : plainTable("List of certificates", ["Names", "Source", "State", "Expires in", "Renewal in", "Issuer", ...(context.isOperator ? ["Orders"] : [])], list.map((one) => [
    h("span.name-cell", { title: one.names.join(", ") }, one.names.slice(0, 3).join(", "), one.names.length > 3 ? ` and ${one.names.length - 3} more` : ""), one.source,
    [badge(one.in_use ? (one.warning ? "warning" : "in use") : one.in_progress ? "in progress" : "missing", one.in_use ? (one.warning ? "warn" : "good") : "bad"), one.warning || one.last_error ? h("span.note.why-state", { title: one.last_error || one.warning }, ` ${one.last_error || one.warning}`) : null],
    one.not_after_unix_s ? h("span", { class: one.not_after_unix_s - now < 604800 ? "bad-text" : "" }, one.not_after_unix_s > now ? format.span(one.not_after_unix_s - now) : "expired") : "–",
    one.renewal_unix_s ? format.span(Math.max(0, one.renewal_unix_s - now)) : "–", one.issuer || "–",
    ...(context.isOperator ? [one.source === "file" ? "" : renewButton(one)] : []),
  ]), [3, 4])));
}

function renewButton(one) {
  const name = one.names[0];
  return order("Renew now", "small", async () => {
    if (!(await ask(`Renew the certificate of ${name} now?`, "An authority limits how often that is possible.", "Renew", "primary"))) return;
    toast((await post("certificates", { name, order: "renew" })).trim() || `The certificate of ${name} is renewed.`);
  });
}
