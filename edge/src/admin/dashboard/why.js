// The panel that finds why the hit ratio fell: the time of the fall, the reasons whose share rose, the routes that lost
// most, and the events just before.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import { clock, moment, points, routeName, share, span } from "./format.js";
import { existing, loadCatalog, outcome, rowShares } from "./metrics.js";
import { badge, filled, note } from "./parts.js";
import { advice, isForwarding, lowersHitRatio, meaning } from "./reasons.js";
import { link, period } from "./state.js";

const ROWS = 5;
/** A fall of less than one percentage point is not explained, nor one of less than two that is over. */
const FALL_MIN = 0.01;
const OVER_MIN = 0.02;
/** Least score of a fall, in usual changes from point to point. */
const NOISE = 4;
/** Smallest part of a fall that is shown. */
const PART_MIN = 0.01;
const ROUTE_SERIES = ["requests", "hits", "validated", "collapsed", "misses", "passes"];
const RELEVANT = new Set(["reload", "purge", "server", "order", "certificate", "volume"]);

/**
 * Finds the time at which the ratio of two columns fell most: the ratio before is higher than the one after by the
 * largest amount, weighed by the lengths of both. The fall ends (`until`) where half of it is made up.
 */
export function findFall(t, good, all) {
  const n = t.length;
  const sums = (column) => column.reduce((list, value, i) => { list.push(list[i] + (value ?? 0)); return list; }, [0]);
  const [hits, requests] = [sums(good), sums(all)];
  const ratio = (from, to) => (hits[to] - hits[from]) / (requests[to] - requests[from]);
  const ratios = good.map((value, i) => value / all[i]).filter(Number.isFinite);
  const noise = Math.sqrt(ratios.reduce((sum, one, i) => sum + (one - (ratios[i - 1] ?? one)) ** 2, 0) / ratios.length);
  let best = null;
  const edge = Math.max(3, Math.floor(n / 40));
  for (let at = edge; at <= n - edge; at += 1) {
    const before = ratio(0, at);
    for (let end = 0, length = 3; end < n; length += 1 + (length >> 4)) {
      end = at + length > n - edge ? n : at + length;
      const after = ratio(at, end);
      const drop = before - after;
      const score = drop * Math.sqrt((at * (end - at)) / end);
      if (!(score > (best?.score ?? NOISE * noise) && drop >= (end < n ? OVER_MIN : FALL_MIN))) continue;
      const later = ratio(end, n);
      if (end === n || later - after > drop / 2) best = { t: t[at], until: t[end] ?? null, before, after, later, score };
    }
  }
  return best;
}

/**
 * Splits the change of the overall hit ratio into the parts of the routes. Each part is the sum of two effects: the
 * route's own ratio changed, and the route's share of the requests did.
 */
export function attribute(before, after) {
  const rows = new Map();
  const total = (list) => list.reduce((sum, row) => sum + rowShares(row).cached, 0);
  const good = (list) => list.reduce((sum, row) => sum + rowShares(row).good, 0);
  const [allBefore, allAfter] = [total(before), total(after)];
  if (allBefore === 0 || allAfter === 0) return [];
  const mean = (good(before) / allBefore + good(after) / allAfter) / 2;
  for (const row of before) rows.set(row.member, { before: rowShares(row) });
  for (const row of after) rows.set(row.member, { ...rows.get(row.member), after: rowShares(row) });
  return [...rows].map(([member, row]) => {
    const [w0, w1] = [(row.before?.cached ?? 0) / allBefore, (row.after?.cached ?? 0) / allAfter];
    const r0 = row.before?.ratio ?? row.after?.ratio ?? mean;
    const r1 = row.after?.ratio ?? r0;
    const own = ((w0 + w1) / 2) * (r1 - r0);
    const mix = (w1 - w0) * ((r0 + r1) / 2 - mean);
    return { member, own, mix, effect: own + mix, r0, r1, w0, w1 };
  }).sort((a, b) => a.effect - b.effect);
}

/** Returns the reasons by how much their share of all requests rose. */
export function risen(before, after, key, requestsBefore, requestsAfter) {
  const old = new Map(before.map((row) => [row.member, row[key] ?? 0]));
  const rows = after.map((row) => {
    const [s0, s1] = [(old.get(row.member) ?? 0) / requestsBefore, (row[key] ?? 0) / requestsAfter];
    return { reason: row.member, s0, s1, rise: s1 - s0 };
  }).filter((row) => row.rise > 0 && lowersHitRatio(row.reason));
  return unexplained(rows).sort((a, b) => b.rise - a.rise);
}

/**
 * Takes from the ways of forwarding what other reasons explain: a request whose response may not be stored counts under
 * the reason for that, and as forwarded because nothing was stored.
 */
function unexplained(rows) {
  let left = rows.reduce((sum, row) => sum + (isForwarding(row.reason) ? 0 : row.rise), 0);
  return rows.map((row) => {
    if (!isForwarding(row.reason)) return row;
    const explained = Math.min(left, row.rise);
    left -= explained;
    return { ...row, rise: row.rise - explained };
  }).filter((row) => row.rise > 0);
}

const table = (scope, series, from, to, top) => get("history", { scope, members: "*", series: series.join(","), from: Math.floor(from), to: Math.floor(to), top })
  .then((data) => data.members || []).catch(() => []);

/** The history of the outcomes over the period and this many periods before, in which a fall is looked for. */
const LOOK_BACK = 3;
const EDGE_SERIES = ["cache_hits", "cache_validated", "cache_collapsed", "cache_misses", "cache_passes"];

export class Why {
  #key = "";
  #signal;

  constructor(signal, events) {
    this.#signal = signal;
    this.events = events;
    this.sentence = h("p.why-sentence", "Loading …");
    this.body = h("div.why-body");
    this.root = h("section.card.wide.why", { "aria-labelledby": "why-title" }, h("h2", { id: "why-title" }, "Why did the hit ratio fall?"), this.sentence, this.body);
  }

  /** Looks at the history again, and explains the fall that it finds. */
  async update() {
    const { from, to, seconds } = period();
    const begin = Math.max(from - seconds * LOOK_BACK, to - 604800);
    let data;
    try {
      data = await get("history", { scope: "edge", member: "", series: EDGE_SERIES.join(","), from: Math.floor(begin), to: Math.floor(to), points: 400 }, this.#signal);
    } catch (error) {
      if (!this.#signal.aborted) put(this.sentence, error.missing ? "Not available: this Sluice keeps no history." : `Not available: ${error.message}`);
      return;
    }
    const column = (...names) => names.map((name) => data.series[name]).find(Boolean) || null;
    const [good, all] = [outcome.good(column), outcome.cached(column)];
    if (!good || !all) return;
    const first = all.findIndex((value) => value !== null);
    if (first < 0 || all.length - first < 8) {
      put(this.sentence, "There are too few values yet to tell.");
      return;
    }
    const t = all.slice(first).map((_, i) => data.from + (first + i) * data.step_s);
    await this.#judge(t, good.slice(first), all.slice(first), data.step_s);
  }

  async #judge(t, good, all, step) {
    const fall = findFall(t, good, all);
    this.root.className = `card wide why ${fall ? "fell" : ""} ${fall?.until ? "over" : ""}`;
    if (!fall) {
      this.#key = "";
      const sum = (column) => column.reduce((total, value) => total + (value ?? 0), 0);
      const length = span(t[t.length - 1] - t[0]);
      put(this.sentence, sum(all) > 0 ? `It did not: in the last ${length} the hit ratio was about ${share(sum(good) / sum(all))}, without a lasting fall.` : "No request reached a cache in this period.");
      put(this.body, note("Choose a longer range to look further back."));
      return;
    }
    const key = `${Math.round(fall.t / Math.max(5, step * 2))}:${!fall.until}:${t.length}:${Math.floor(Date.now() / 30000)}`;
    if (key === this.#key) return;
    this.#key = key;
    await this.#explain(fall, t, all, step);
  }

  async #explain(fall, t, all, step) {
    const [begin, end] = [t[0], fall.until ?? t[t.length - 1] + step];
    await loadCatalog();
    const name = existing("reason", ["requests", "requests_by_reason", "count"])[0] || "requests";
    const series = existing("route", ROUTE_SERIES);
    const [r0, r1, q0, q1] = await Promise.all([
      table("route", series, begin, fall.t, 2000), table("route", series, fall.t, end, 2000),
      table("reason", [name], begin, fall.t, 500), table("reason", [name], fall.t, end, 500),
    ]);
    if (this.#signal.aborted) return;
    const least = Math.max(0.001, (fall.before - fall.after) * PART_MIN);
    const routes = attribute(r0, r1).filter((row) => -row.effect >= least);
    const perSecond = (from, to) => {
      const values = all.filter((value, i) => value !== null && t[i] >= from && t[i] < to);
      return values.reduce((sum, value) => sum + value, 0) / Math.max(1, values.length);
    };
    const reasons = risen(q0, q1, name, perSecond(begin, fall.t) || 1, perSecond(fall.t, end) || 1).filter((row) => row.rise >= least);
    this.step = step;
    this.#show(fall, routes, reasons);
  }

  #show(fall, routes, reasons) {
    const drop = fall.before - fall.after;
    put(this.sentence, h("strong", `The hit ratio fell by ${points(drop).slice(1)} points at ${moment(fall.t)}`), ` (${span(Date.now() / 1000 - fall.t)} ago), from ${share(fall.before)} to ${share(fall.after)}${fall.until ? `, and recovered at ${moment(fall.until)}, to ${share(fall.later)}` : ""}. `,
      this.#story(routes[0], reasons[0], drop));
    put(this.body, this.#reasons(reasons), this.#routes(routes, drop), this.#events(fall));
  }

  #story(route, reason, drop) {
    const parts = [];
    if (route && -route.effect > drop * 0.3) {
      const part = Math.min(100, Math.round((-route.effect / drop) * 100));
      parts.push(h("span", `${part} % of it comes from `, h("a", { href: link("routes", { route: route.member }) }, routeName(route.member)), ". "));
    }
    if (reason) parts.push(h("span", "The reason that rose most is ", h("code", reason.reason), meaning(reason.reason) ? `: ${meaning(reason.reason)} ${advice(reason.reason)}` : "."));
    return parts;
  }

  #reasons(reasons) {
    return part("Reasons that rose", "No reason's share rose, as far as is known.", reasons, "miss", (row) => [
      h("code", row.reason), row.rise, `${share(row.s0)} → ${share(row.s1)} of the requests. ${meaning(row.reason)}`]);
  }

  #routes(routes, drop) {
    const line = (row) => (row.own <= row.mix
      ? `its hit ratio went from ${share(row.r0)} to ${share(row.r1)}`
      : `its share of the requests went from ${share(row.w0)} to ${share(row.w1)}, at a hit ratio of ${share(row.r1)}`);
    return part("Routes that lost most hits", "No route stands out.", routes, "error", (row) => [
      h("a", { href: link("routes", { route: row.member }) }, routeName(row.member)), row.effect, `${Math.min(100, Math.round((-row.effect / drop) * 100))} % of the fall: ${line(row)}.`]);
  }

  #events(fall) {
    const near = this.events().filter((one) => RELEVANT.has(one.kind) && !isMinor(one) && one.time / 1000 > fall.t - 300 && one.time / 1000 < fall.t + Math.max(60, 2 * this.step));
    return h("div.why-part", h("h3", "Just before"), near.length === 0 ? note("No reload, purge or order in the five minutes before.") : h("ul.near", near.slice(-ROWS).reverse().map((one) => h("li",
      h("time", clock(one.time / 1000)), distance(one.time / 1000 - fall.t), badge(one.kind, "warn"), h("span", one.message)))));
  }
}

/** Whether an event lowers no hit ratio: a new volume, or a purge of one URL. Many such purges are one event with a count. */
const isMinor = (one) => one.reason === "formatted" || (!(one.count > 9) && /^(purged: \S*\/\S*( in cache .*)?$|a client purged)/.test(one.message));
const distance = (seconds) => `${span(seconds)} ${seconds > 0 ? "after" : "before"}`;

/** Shows rows with a name, a change and a note each. The first change is the largest. */
function part(title, none, rows, tone, cells) {
  return h("div.why-part", h("h3", title), rows.length === 0 ? note(none) : h("ol.bars", rows.slice(0, ROWS).map(cells).map(([name, change, text], _, [[, most]]) => h("li",
    h("span.bar-head", name, h("span.number.bad-text", `${points(change)} points`)), bar(change / most, tone), h("span.bar-note", text)))));
}

const bar = (ratio, tone) => h("span.bar", { "aria-hidden": "true" }, filled(`bar-fill c-${tone}`, Math.max(0.01, ratio)));
