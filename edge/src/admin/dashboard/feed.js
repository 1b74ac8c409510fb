// The history of some series of one member, kept up to date by the stream of points.

import { backoff, get, stream, wait } from "./api.js";
import { existing, loadCatalog } from "./metrics.js";
import { comparison, period } from "./state.js";

const POLL_MIN_S = 5;
/** Shortest time after which the history is asked again for the compared period. */
const RELOAD_MIN_MS = 15000;

const isPeak = (name) => /_(p\d+|max)$/.test(name);

/** Returns the most points that a chart of this page can show. */
function pointsWanted() {
  return Math.min(600, Math.max(200, Math.round(innerWidth / 2.5)));
}

/** Series of one member over the period that is shown. */
export class Feed {
  t = [];
  step = 1;
  state = "loading";
  error = "";
  #columns = new Map();
  #before = null;
  #counts = new Map();
  #listeners = new Set();
  #abort = null;
  #timer = 0;
  #loaded = 0;
  #gap = null;

  /**
   * `streamed`: whether new points come as a stream. Otherwise the history is asked again. `certain`: whether all series exist,
   * so that the list of series need not be awaited.
   */
  constructor({ scope, member = "", series, streamed = false, certain = false }) {
    Object.assign(this, { scope, member, series, streamed, certain });
  }

  onChange(listener) {
    this.#listeners.add(listener);
  }

  /** Returns the function that finds a column by the first of the names that exists. */
  now = (...names) => this.#find(this.#columns, names);
  then = (...names) => (this.#before ? this.#find(this.#before, names) : null);

  /** Returns the time of the first value of any series. */
  get begin() {
    const columns = [...this.#columns.values()];
    return this.t.find((_, i) => columns.some((column) => column[i] != null));
  }

  get compared() {
    return this.#before !== null;
  }

  #find(columns, names) {
    for (const name of names) if (columns.has(name)) return columns.get(name);
    return null;
  }

  /** Loads the history of the period, and follows it if the period ends now. */
  async start(outer) {
    this.stop();
    const abort = new AbortController();
    this.#abort = abort;
    outer?.addEventListener("abort", () => abort.abort(), { once: true, signal: abort.signal });
    // A member has no history during the first seconds of the server.
    const pauses = backoff();
    for (;;) {
      await this.#load(abort.signal);
      if (abort.signal.aborted || this.state === "ready") break;
      await wait(pauses.next(), abort.signal);
    }
    if (!abort.signal.aborted && period().live && !document.hidden) this.#follow(abort.signal);
  }

  stop() {
    this.#abort?.abort();
    this.#endPoll();
  }

  async #load(signal) {
    try {
      const shift = comparison();
      const both = [this.#history(0, signal), shift > 0 ? this.#history(shift, signal) : null];
      const [now, before] = await Promise.all(both);
      if (signal.aborted) return;
      this.#take(now, before, shift);
      this.state = "ready";
      this.#loaded = performance.now();
    } catch (error) {
      if (signal.aborted) return;
      this.state = error.missing ? "missing" : "failed";
      this.error = error.message;
      if (error.missing) [this.t, this.step, this.#columns, this.#before] = [[], 1, new Map(), null];
    }
    this.#changed();
  }

  async #history(shift, signal) {
    const { from, to } = period();
    const ask = (series) => get("history", {
      scope: this.scope, member: this.member, series: series.join(","),
      from: Math.floor(from - shift), to: Math.floor(to - shift), points: pointsWanted(),
    }, signal);
    if (!this.certain) await loadCatalog();
    const wanted = existing(this.scope, this.series);
    try {
      return await ask(wanted);
    } catch (error) {
      // A name may be unknown. The list of series tells which ones exist.
      if (error.status !== 400 && error.status !== 404) throw error;
      await loadCatalog();
      const known = existing(this.scope, this.series);
      if (known.length === wanted.length || known.length === 0) throw error;
      return ask(known);
    }
  }

  #take(now, before, shift) {
    const names = Object.keys(now.series);
    const length = names.length > 0 ? now.series[names[0]].length : 0;
    this.step = now.step_s || 1;
    this.t = Array.from({ length }, (_, i) => now.from + i * this.step);
    this.#columns = new Map(names.map((name) => [name, now.series[name]]));
    this.#counts.clear();
    this.#before = before ? this.#aligned(before, shift) : null;
    this.#trim();
  }

  /** Brings the earlier period to the times of this one. */
  #aligned(before, shift) {
    const columns = new Map();
    for (const [name, values] of Object.entries(before.series)) {
      columns.set(name, this.t.map((t) => values[Math.round((t - shift - before.from) / before.step_s)] ?? null));
    }
    return columns;
  }

  #follow(signal) {
    if (!this.streamed) {
      this.#poll(signal);
      return;
    }
    const names = this.#columns.size > 0 ? [...this.#columns.keys()] : existing(this.scope, this.series);
    let lost = false;
    const poll = (on) => {
      if (on && !this.#timer) this.#poll(signal);
      if (!on) this.#endPoll();
    };
    stream("stream", { scope: this.scope, member: this.member, series: names.join(",") }, signal, (event) => {
      if (event.type === "point") this.#point(JSON.parse(event.data), signal);
    }, (state) => {
      dispatchEvent(new CustomEvent("sluice-stream", { detail: state }));
      poll(state === "missing" || state === "busy");
      // After a gap, the history has what the stream missed.
      if (state === "live" && lost) this.#load(signal);
      lost = state !== "live";
    });
  }

  #endPoll() {
    clearTimeout(this.#timer);
    this.#timer = 0;
  }

  #poll(signal) {
    const pause = Math.max(POLL_MIN_S, Math.min(this.step, 60)) * 1000;
    const timer = setTimeout(async () => {
      await this.#load(signal);
      if (this.#timer === timer) this.#poll(signal);
    }, pause);
    this.#timer = timer;
  }

  /** Whether the history has more than the stream has brought: points of a gap, or of the compared period. */
  #lacks(at, end) {
    if (this.state !== "ready") return false;
    const since = performance.now() - this.#loaded;
    const isGap = end !== null && at - end > this.step * 1.5;
    const isOld = this.compared && since > Math.max(RELOAD_MIN_MS, period().seconds * 50);
    // If the history lacks the points of a gap, too, nothing was collected then.
    const isNew = isGap && this.#gap !== end;
    this.#gap = isGap ? end : this.#gap;
    return isNew || isOld;
  }

  #point({ t, series }, signal) {
    const at = Math.floor(t / this.step) * this.step;
    let end = this.t.length > 0 ? this.t[this.t.length - 1] : null;
    if (end !== null && at < end) return;
    if (this.#lacks(at, end)) {
      this.#loaded = performance.now();
      this.#load(signal);
      return;
    }
    for (const name of Object.keys(series)) {
      if (!this.#columns.has(name)) this.#columns.set(name, new Array(this.t.length).fill(null));
    }
    if (end !== null && at - end > this.step * 10000) end = null;
    for (let next = end === null ? at : end + this.step; next <= at; next += this.step) this.#push(next);
    const index = this.t.length - 1;
    for (const [name, value] of Object.entries(series)) this.#merge(name, index, value);
    this.#trim();
    this.#changed();
  }

  #push(t) {
    this.t.push(t);
    for (const column of this.#columns.values()) column.push(null);
    for (const column of this.#before?.values() ?? []) column.push(null);
    this.#counts.clear();
  }

  /** Adds a value to the last point: means of rates, maxima of percentiles. */
  #merge(name, index, value) {
    if (value == null) return;
    const column = this.#columns.get(name);
    const old = column[index];
    const n = this.#counts.get(name) ?? (old === null ? 0 : Math.max(1, Math.round(this.step / 2)));
    if (old === null || this.step <= 1) column[index] = value;
    else column[index] = isPeak(name) ? Math.max(old, value) : (old * n + value) / (n + 1);
    this.#counts.set(name, n + 1);
  }

  #trim() {
    const { seconds, live } = period();
    const end = this.t[this.t.length - 1];
    if (!live || end === undefined) return;
    let drop = 0;
    while (drop < this.t.length && this.t[drop] < end - seconds - this.step) drop += 1;
    if (drop === 0) return;
    this.t.splice(0, drop);
    for (const column of this.#columns.values()) column.splice(0, drop);
    for (const column of this.#before?.values() ?? []) column.splice(0, drop);
  }

  #changed() {
    for (const listener of this.#listeners) listener(this);
  }
}
