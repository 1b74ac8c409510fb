// The overview: traffic, hit ratio, latency, what the cache saves, and why the hit ratio fell.

import { get } from "./api.js";
import { marks } from "./chart.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { EDGE_OUTCOMES, RATIOS, STATUSES, lift, line, max, mean, outcome, over, percentiles } from "./metrics.js";
import { Tile } from "./parts.js";
import { Recent } from "./recent.js";
import { period } from "./state.js";

const SERIES = [...EDGE_OUTCOMES, ...STATUSES, ...percentiles("request_duration"), "upstream_requests", "connections_now", "requests_now"];
/** A series with a value at each point of the history. */
const ALWAYS = "client_bytes_out";
const GB = 1e9;
const MARKED = { reload: "validated", purge: "miss", order: "collapsed", server: "error" };

/** The series of requests by outcome, the best at the bottom. */
export const OUTCOME_SERIES = [
  line("hit", "hit", "hit", outcome.hits, "Served from stored bytes"),
  line("validated", "validated", "validated", outcome.validated, "Served from stored bytes that the origin confirmed"),
  line("collapsed", "collapsed", "collapsed", outcome.collapsed, "Served by the fetch of another request"),
  line("miss", "miss", "miss", outcome.misses, "Fetched from the origin for this request"),
  line("pass", "pass", "pass", outcome.passes, "Forwarded without the cache"),
  line("other", "no cache", "other", outcome.uncached, "Of routes without a cache, or refused"),
];

/** The series of a duration's or size's percentiles. */
export const percentileSeries = (name) => [
  ...["p50", "p95", "p99"].map((p) => line(p, p === "p50" ? "median" : p, p, `${name}_${p}`)),
  { ...line("max", "max", "max", `${name}_max`), width: 1 },
];

const perBefore = (c, of) => mean(of(c));

function tiles() {
  return {
    requests: new Tile({ label: "Requests", tone: "hit" }),
    ratio: new Tile({ label: "Hit ratio", help: "Share of the requests to a cache that were served from stored bytes", tone: "hit" }),
    latency: new Tile({ label: "Latency, p95", help: "Mean of the chart's points: in each, 95 of 100 requests were faster. Quiet times count as much as busy ones.", tone: "p95" }),
    errors: new Tile({ label: "Server errors", help: "Share of the responses with a status of 5xx", tone: "error" }),
    offload: new Tile({ label: "Origin offload", help: "Share of the bytes to clients that no origin had to send", tone: "validated" }),
    saved: new Tile({ label: "Saved", help: "Bytes to clients less those from origins, and their price", tone: "validated" }),
  };
}

/** Returns the sum of a rate over the period, and the seconds of which it is known, at the earliest since `since`. */
export function total(column, t, step, from, to, since) {
  let [sum, seconds] = [0, 0];
  (column || []).forEach((rate, i) => {
    if (rate === null || rate === undefined) return;
    const length = Math.max(0, Math.min(t[i] + step, to) - Math.max(t[i], from, since));
    sum += rate * length;
    seconds += length;
  });
  return { sum, seconds };
}

/** Finds the beginning of the history within its first point, of which it may cover only the end. */
class Beginning {
  since = 0;
  #key = "";

  /** Returns whether it has been found. */
  async update(feed, signal) {
    const first = (feed.now(ALWAYS) || []).findIndex((value) => value !== null && value !== undefined);
    const key = first > 0 && feed.step > 1 ? `${feed.t[first]} ${feed.step}` : "";
    if (key === this.#key) return false;
    [this.#key, this.since] = [key, 0];
    if (!key) return false;
    try {
      const from = feed.t[first];
      const data = await get("history", { scope: "edge", series: ALWAYS, from, to: from + feed.step, points: 2000 }, signal);
      const at = data.series[ALWAYS].findIndex((value) => value !== null);
      if (key !== this.#key || at <= 0) return false;
      this.since = data.from + at * data.step_s;
      return true;
    } catch {
      // The first point counts as a whole then.
      return false;
    }
  }
}

function fillTiles(all, feed, settings, since) {
  const { now, then } = feed;
  const compare = (of) => (feed.compared ? perBefore(then, of) : null);
  const isBoth = (value, before) => value !== null && before !== null;
  const delta = (value, before) => (isBoth(value, before) ? { delta: format.change(value, before), sign: Math.sign(value - before) } : {});
  const points = (value, before) => (isBoth(value, before) ? { delta: `${format.points(value - before)} pt`, sign: Math.sign(value - before) } : {});
  const requests = now("requests");
  all.requests.set(format.rate(mean(requests)), { ...delta(mean(requests), compare((c) => c("requests"))), sub: `peak ${format.rate(max(requests))}`, column: requests });

  const ratio = (c) => { const [good, cached] = [mean(outcome.good(c)), mean(outcome.cached(c))]; return cached > 0 ? good / cached : null; };
  const bytes = (c) => { const [a, b] = [mean(c("cache_hit_bytes", "hit_bytes")), mean(c("cache_response_bytes", "body_bytes"))]; return b > 0 ? a / b : null; };
  const [r1, r0] = [ratio(now), feed.compared ? ratio(then) : null];
  all.ratio.set(format.share(r1), { ...points(r1, r0), better: 1, sub: `by bytes ${format.share(bytes(now))}`, column: outcome.ratio(now) });

  const p95 = now("request_duration_p95");
  all.latency.set(format.seconds(mean(p95)), { ...delta(mean(p95), compare((c) => c("request_duration_p95"))), better: -1, sub: `median ${format.seconds(mean(now("request_duration_p50")))}, p99 ${format.seconds(mean(now("request_duration_p99")))}`, column: p95 });

  const errors = (c) => { const [e, q] = [mean(c("responses_5xx")), mean(c("requests"))]; return q > 0 ? e / q : null; };
  const [e1, e0] = [errors(now), feed.compared ? errors(then) : null];
  all.errors.set(format.share(e1), { ...delta(e1, e0), better: -1, sub: `${format.rate(mean(now("responses_5xx")))}, 4xx ${format.rate(mean(now("responses_4xx")))}`, column: over(now("responses_5xx"), requests) });

  const offload = (c) => { const [out, from] = [mean(outcome.content(c)), mean(outcome.origin(c))]; return out > 0 && from !== null ? 1 - from / out : null; };
  const [o1, o0] = [offload(now), feed.compared ? offload(then) : null];
  all.offload.set(format.share(o1), { ...points(o1, o0), better: 1, sub: `${format.bytesRate(mean(outcome.served(now)))} out, ${format.bytesRate(mean(outcome.origin(now)))} from origins`, column: outcome.offload(now) });
  fillSaved(all.saved, feed, settings, since);
}

function fillSaved(tile, feed, settings, since) {
  const price = settings?.price_per_gb ?? 0;
  const currency = settings?.price_currency ?? "$";
  const column = lift((out, from) => out - from, outcome.content(feed.now), outcome.origin(feed.now));
  const { from, to, live } = period();
  const end = live ? Math.max(to, feed.t[feed.t.length - 1] ?? 0) : to;
  const { sum: bytes, seconds } = total(column, feed.t, feed.step, from, end, since);
  if (!(price > 0)) {
    tile.set(format.bytes(bytes), { sub: "that no origin had to send; set price_per_gb for money", column });
    return;
  }
  const saved = (bytes / GB) * price;
  const month = seconds > 0 ? (saved / seconds) * 30 * 86400 : null;
  tile.set(format.money(saved, currency), { sub: `${format.bytes(bytes)} that no origin had to send; ${format.money(month, currency)} a month at this rate`, column });
}

/** Remembers events, for the lines in charts. */
function eventMarks(events) {
  marks.set(events.filter((one) => MARKED[one.kind]).map((one) => ({ t: one.time / 1000, tone: MARKED[one.kind] })));
}

/** Adds the panel about the hit ratio, whose code is loaded after that of the charts. */
async function showWhy(place, context, recent) {
  const { Why } = await import("./why.js");
  if (context.signal.aborted) return;
  const why = new Why(context.signal, () => recent.list);
  put(place, why.root);
  context.onPeriod(context.every(10, () => why.update()));
}

export function start(root, context) {
  const feed = context.feed({ scope: "edge", series: SERIES, streamed: true, certain: true });
  const all = tiles();
  const recent = new Recent(context.signal);
  const why = h("div.grid.why-place");
  const strip = h("div.tiles", Object.values(all).map((tile) => tile.root));
  const charts = h("div.grid",
    context.chart({ id: "traffic", title: "Requests by outcome", feed, stacked: true, series: OUTCOME_SERIES, height: 240, wide: true }),
    context.chart({ id: "ratio", title: "Hit ratio", feed, unit: "share", series: RATIOS }),
    context.chart({ id: "latency", title: "Latency", note: null, feed, unit: "seconds", log: true, series: percentileSeries("request_duration") }),
    context.chart({ id: "bytes", title: "Bytes to clients and from origins", feed, unit: "bytesRate", series: [
      line("out", "to clients", "hit", outcome.served),
      line("in", "from origins", "miss", outcome.origin)] }),
    context.chart({ id: "status", title: "Errors and redirects", feed, series: [
      line("3xx", "3xx", "other", "responses_3xx"),
      line("4xx", "4xx", "miss", "responses_4xx"),
      line("5xx", "5xx", "error", "responses_5xx")] }));
  put(root, h("h1", "Overview"), strip, why, h("h2.hidden", "Charts"), charts);
  const beginning = new Beginning();
  const fill = () => fillTiles(all, feed, context.shared.settings, beginning.since);
  feed.onChange(() => {
    fill();
    beginning.update(feed, context.signal).then((isFound) => isFound && fill());
  });
  showWhy(why, context, recent);
  context.onSettings = fill;
  context.every(5, async () => {
    if (await recent.load()) eventMarks(recent.list);
  });
}
