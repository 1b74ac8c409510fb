// The names of the history's series, and sums over them.

import { get } from "./api.js";

let catalog = null;
let loading = null;

/** Loads the list of members and series once. The result is null if this Sluice has none. */
export function loadCatalog() {
  loading ||= get("members")
    .then((data) => { catalog = data; return data; })
    .catch((error) => {
      // A later call tries again, unless there is no such page.
      if (!error.missing) loading = null;
      return null;
    });
  return loading;
}

/** Has the list loaded again, since members may have changed. */
export function forgetCatalog() {
  loading = null;
}

/** Returns the names of the wanted series that exist, or all of them while the list is not known. */
export function existing(scope, wanted) {
  const known = catalog?.series?.[scope];
  if (!known) return wanted;
  const names = new Set(known.map((one) => (typeof one === "string" ? one : one.name)));
  return wanted.filter((name) => names.has(name));
}

/** Applies a function to the values of several columns. A missing value makes the result missing. */
export function lift(combine, ...columns) {
  if (columns.some((column) => !column)) return null;
  const result = new Array(Math.min(...columns.map((column) => column.length)));
  const values = new Array(columns.length);
  for (let i = 0; i < result.length; i += 1) {
    let whole = true;
    for (let j = 0; j < columns.length; j += 1) {
      values[j] = columns[j][i];
      if (values[j] == null) whole = false;
    }
    result[i] = whole ? combine(...values) : null;
  }
  return result;
}

const add = (a, b) => a + b;

export function plus(...columns) {
  const there = columns.filter(Boolean);
  return there.length === 0 ? null : there.reduce((sum, column) => lift(add, sum, column));
}

export const over = (part, all) => lift((a, b) => (b > 0 ? a / b : null), part, all);
export const minus = (a, b) => (b ? lift((x, y) => Math.max(0, x - y), a, b) : a);

const known = (column) => (column || []).filter((value) => value !== null && value !== undefined);

/** Returns a column's mean, without missing values. */
export function mean(column) {
  const values = known(column);
  return values.length > 0 ? values.reduce(add) / values.length : null;
}

export function max(column) {
  const values = known(column);
  return values.length > 0 ? Math.max(...values) : null;
}

/** Returns the last value of a column. */
export const last = (column) => known(column).pop() ?? null;

/** A series of a chart: `of` is the name of its column, or a function that computes it. */
export const line = (key, label, color, of = key, help) => ({ key, label, color, of: typeof of === "string" ? (c) => c(of) : of, help });

/** The columns by outcome. The worker's numbers have the prefix `cache_`, those of routes and caches have none. */
export const outcome = {
  hits: (c) => c("cache_hits", "hits"),
  validated: (c) => c("cache_validated", "validated"),
  collapsed: (c) => c("cache_collapsed", "collapsed"),
  misses: (c) => c("cache_misses", "misses"),
  passes: (c) => c("cache_passes", "passes"),
  good: (c) => plus(outcome.hits(c), outcome.validated(c)),
  cached: (c) => plus(outcome.hits(c), outcome.validated(c), outcome.collapsed(c), outcome.misses(c), outcome.passes(c)),
  uncached: (c) => minus(c("requests"), outcome.cached(c)),
  ratio: (c) => over(outcome.good(c), outcome.cached(c)),
  byteRatio: (c) => over(c("cache_hit_bytes", "hit_bytes"), c("cache_response_bytes", "body_bytes")),
  served: (c) => c("client_bytes_out", "body_bytes"),
  origin: (c) => c("upstream_bytes_in", "upstream_bytes"),
  /** The bytes to clients, without those of moments that had nothing but error responses, which Sluice makes itself. */
  content: (c) => lift((out, from, good, failed) => (failed > 0 && from === 0 && good === 0 ? 0 : out),
    outcome.served(c), outcome.origin(c), outcome.good(c), c("responses_5xx")),
  offload: (c) => lift((out, from) => (out > 0 ? Math.max(0, 1 - from / out) : null), outcome.content(c), outcome.origin(c)),
};

/** The series of the hit ratio. */
export const RATIOS = [line("requests", "by requests", "hit", outcome.ratio), line("bytes", "by bytes", "collapsed", outcome.byteRatio)];

/** Names of the series of the outcomes of the edge, and of routes, sites and caches. */
export const EDGE_OUTCOMES = ["requests", "cache_hits", "cache_validated", "cache_collapsed", "cache_misses", "cache_passes",
  "cache_hit_bytes", "cache_response_bytes", "client_bytes_out", "upstream_bytes_in"];
export const ROUTE_OUTCOMES = ["requests", "hits", "validated", "collapsed", "misses", "passes", "hit_bytes", "body_bytes",
  "upstream_bytes", "upstream_requests"];
export const STATUSES = ["responses_2xx", "responses_3xx", "responses_4xx", "responses_5xx"];

/** Returns the names of a duration's or size's percentiles. */
export const percentiles = (name) => ["p50", "p95", "p99", "max"].map((p) => `${name}_${p}`);

/** Returns the shares of one row of the table of members. */
export function rowShares(row) {
  const good = (row.hits ?? 0) + (row.validated ?? 0);
  const cached = good + (row.misses ?? 0) + (row.collapsed ?? 0) + (row.passes ?? 0);
  return { good, cached, ratio: cached > 0 ? good / cached : null };
}
