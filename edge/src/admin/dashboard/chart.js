// Charts of a feed's series with uPlot, each with a legend and a table as alternative.

/* global uPlot */

import { color, h, put, say, text, uid } from "./dom.js";
import { axisWriters, bytes, clock, moment, writers } from "./format.js";
import { hidden, isDefaultPeriod, period, set, toggleHidden } from "./state.js";

const TABLE_ROWS = 24;
/** Shortest time that a chart shows, in seconds. */
const SPAN_MIN = 60;
const BYTE_STEPS = Array.from({ length: 50 }, (_, i) => 2 ** i);

/** Longest time that a frame spends on charts before it leaves the others to the next one, in milliseconds. */
const FRAME_MS = 8;

const due = new Set();
let frame = 0;
let drawn = false;
let isLoaded = false;

/** Draws charts from now on, once the library is there, which the browser runs while it loads the page's own modules. */
export function loadLibrary() {
  const begin = () => {
    isLoaded = true;
    for (const chart of all) draw(chart);
  };
  if (globalThis.uPlot) begin();
  else document.getElementById("uplot").addEventListener("load", begin);
}

/** Draws a chart in one of the next frames. */
function draw(chart) {
  due.add(chart);
  frame ||= requestAnimationFrame(drawDue);
}

/** Draws the charts that are due, the first ones first. */
function drawDue() {
  frame = 0;
  const end = performance.now() + FRAME_MS;
  for (const chart of due) {
    due.delete(chart);
    chart.update();
    noteDrawn(chart);
    if (performance.now() > end) break;
  }
  if (due.size > 0) frame ||= requestAnimationFrame(drawDue);
}

/** Announces the first chart. */
function noteDrawn(chart) {
  if (drawn || !chart.isDrawn) return;
  drawn = true;
  dispatchEvent(new Event("sluice-drawn"));
}

/** Vertical lines for events, such as purges and reloads. */
export const marks = { list: [], set(list) { this.list = list; for (const chart of all) draw(chart); } };
const all = new Set();

/** Builds all charts again, after the theme has changed. */
export function recolor() {
  for (const chart of all) chart.rebuild();
}

/** Draws all charts again, after a series was hidden or shown. */
export function refreshCharts() {
  for (const chart of all) chart.fresh();
}

const seen = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    for (const chart of all) if (chart.root === target) chart.seen(isIntersecting);
  }
}, { rootMargin: "200px" });

const sizes = new ResizeObserver((entries) => {
  for (const { target } of entries) for (const chart of all) if (chart.plot === target) chart.resize();
});

/** Keeps every fifth power of two, so that a logarithmic axis of bytes stays readable. */
const every32 = (_, splits) => splits.map((value) => (Math.round(Math.log2(value)) % 5 === 0 ? value : null));

function axisTime(_, splits, __, ___, step) {
  let day = "";
  return splits.map((t) => {
    const at = new Date(t * 1000);
    const date = `${at.getDate()}.${at.getMonth() + 1}.`;
    if (step >= 86400) return date;
    const shown = clock(t, step < 60);
    const isNew = period().seconds > 43200 && at.getHours() === 0 && day !== date;
    day = date;
    return isNew ? date : shown;
  });
}

/** Finds the points of a series that no line reaches. */
const isolated = (u, series) => u.data[series].flatMap((value, i, all) => (value != null && all[i - 1] == null && all[i + 1] == null ? [i] : []));

/** Returns the times at which charts of a feed begin and end. In the period that the page chose, nothing is shown of the time before the first value. */
export function shownPeriod(feed) {
  const { from, to, live, seconds } = period();
  if (!live) return { min: from, max: to };
  const max = Math.max(feed.t[feed.t.length - 1] ?? to, 0);
  const begin = isDefaultPeriod() && !feed.compared ? Math.min(feed.begin ?? 0, max - SPAN_MIN) : 0;
  return { min: Math.max(max - seconds, begin), max };
}

/** The legend of a chart: a button for each series, which hides it, with the value under the pointer. */
class Legend {
  #entries = new Map();

  constructor(chart, series, write) {
    this.write = write;
    this.root = h("ul.legend");
    for (const { key, label, color, help } of series) {
      const value = h("span.value");
      const before = h("span.before");
      const button = h("button", {
        type: "button", "aria-pressed": "true", title: help || `Hide or show ${label}`, onclick: () => toggleHidden(chart, key),
      }, h("span", { class: `swatch c-${color}`, "aria-hidden": "true" }), h("span.name", label), value, before);
      const item = h("li", { hidden: true }, button);
      this.#entries.set(key, { item, button, value, before });
      this.root.append(item);
    }
  }

  /** Shows the entries of these series. Those in `off` are hidden in the chart. */
  offer(keys, off) {
    const there = new Set(keys);
    for (const [key, { item, button }] of this.#entries) {
      item.hidden = !there.has(key);
      button.setAttribute("aria-pressed", String(!off.has(key)));
    }
  }

  /** Shows a value of a series, and the one of the time before. */
  value(key, value, before) {
    const entry = this.#entries.get(key);
    if (!entry) return;
    text(entry.value, this.write(value));
    text(entry.before, before == null ? "" : `was ${this.write(before)}`);
  }
}

export class Chart {
  #uplot = null;
  #visible = false;
  #stale = true;
  #drawn = [];
  #built = "";

  /**
   * `series`: `{ key, label, color, of }`, where `of` computes a column from a function that finds columns by name.
   * `unit` is the name of a writer. `stacked` draws areas on each other.
   */
  constructor(options) {
    this.options = { height: 190, unit: "rate", ...options };
    this.id = options.id;
    this.write = options.write || writers[this.options.unit];
    this.label = uid("chart");
    this.legend = new Legend(this.id, this.options.series, this.write);
    this.plot = h("div", {
      class: "plot", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-labelledby": this.label,
      onkeydown: (event) => this.#key(event), onblur: () => this.#point(null),
    });
    this.plot.style.setProperty("height", `${this.options.height}px`);
    this.table = h("div.chart-table", { hidden: true, tabindex: "0", role: "region", "aria-label": `${this.options.title}, as a table` });
    this.toggle = h("button", {
      type: "button", class: "quiet small", "aria-expanded": "false", "aria-label": `${this.options.title}: table`, title: "Show as a table", onclick: () => this.#flip(),
    }, "Table");
    this.time = h("span.chart-time");
    this.root = h("figure", { class: `card chart ${this.options.wide ? "wide" : ""}` },
      h("figcaption",
        h("h3", { id: this.label }, this.options.title), this.time, this.toggle,
        this.options.note ? h("p.note", this.options.note) : null),
      this.legend.root, this.plot, this.table);
    this.options.feed.onChange(() => this.fresh());
    all.add(this);
    seen.observe(this.root);
    sizes.observe(this.plot);
  }

  destroy() {
    all.delete(this);
    seen.unobserve(this.root);
    sizes.unobserve(this.plot);
    this.#uplot?.destroy();
  }

  fresh() {
    this.#stale = true;
    if (this.#visible) draw(this);
  }

  seen(is) {
    this.#visible = is;
    if (is && this.#stale) draw(this);
  }

  rebuild() {
    this.#built = "";
    this.#stale = true;
    draw(this);
  }

  resize() {
    const width = Math.floor(this.plot.clientWidth);
    if (this.#uplot && width > 0 && Math.abs(width - this.#uplot.width) > 0) this.#uplot.setSize({ width, height: this.options.height });
  }

  get isDrawn() {
    return this.#uplot !== null;
  }

  /** Brings the chart up to date with its feed. */
  update() {
    if (!all.has(this) || !isLoaded) return;
    this.#stale = false;
    const { feed } = this.options;
    const there = this.options.series.map((one) => ({ ...one, values: one.of(feed.now), before: feed.compared ? one.of(feed.then) : null }))
      .filter((one) => one.values && one.values.some((value) => value !== null));
    if (there.length === 0) {
      this.#empty();
      return;
    }
    const off = hidden(this.id);
    const shape = there.map((one) => one.key + (one.before ? "'" : "")).join() + document.documentElement.dataset.theme;
    this.#drawn = there;
    const data = this.options.stacked ? this.#stackedData(there, off) : this.#plainData(there);
    if (shape !== this.#built || !this.#uplot) this.#build(there, shape, data);
    else this.#uplot.setData(data, false);
    this.#uplot.batch(() => {
      this.#showOnly(there, off);
      this.#uplot.setScale("x", shownPeriod(feed));
    });
    this.legend.offer(there.map((one) => one.key), off);
    this.#values(this.#uplot.cursor.idx);
    if (!this.table.hidden) this.#fillTable();
  }

  #empty() {
    const { feed } = this.options;
    this.#uplot?.destroy();
    this.#uplot = null;
    this.legend.offer([], new Set());
    const why = feed.state === "loading" ? "Loading …"
      : feed.state === "missing" ? "There is no history of this yet."
        : feed.state === "failed" ? `Not available: ${feed.error}` : "No values in this period.";
    put(this.plot, h("p.empty", why));
  }

  #plainData(there) {
    const { t } = this.options.feed;
    const clean = this.options.log ? (column) => column.map((value) => (value > 0 ? value : null)) : (column) => column;
    const columns = there.map((one) => clean(one.values));
    const before = there.filter((one) => one.before).map((one) => clean(one.before));
    return [t, ...columns, ...before];
  }

  /** Each area reaches from zero to the sum of itself and those below, so the highest one is drawn first. */
  #stackedData(there, off) {
    const { t } = this.options.feed;
    const sums = new Array(t.length).fill(0);
    const columns = there.map((one) => {
      const isOff = off.has(one.key);
      return one.values.map((value, i) => {
        if (value == null) return null;
        if (!isOff) sums[i] += value;
        return sums[i];
      });
    });
    const before = there.filter((one) => one.before && !off.has(one.key)).map((one) => one.before);
    const total = before.length > 0 ? t.map((_, i) => before.reduce((sum, column) => (sum === null || column[i] === null ? null : sum + column[i]), 0)) : null;
    const reversed = columns.reverse();
    return total || there.some((one) => one.before) ? [t, ...reversed, total || t.map(() => null)] : [t, ...reversed];
  }

  #showOnly(there, off) {
    const order = this.options.stacked ? [...there].reverse() : [...there, ...there.filter((one) => one.before)];
    order.forEach((one, i) => {
      const show = !off.has(one.key);
      if (this.#uplot.series[i + 1].show !== show) this.#uplot.setSeries(i + 1, { show });
    });
  }

  #series(there) {
    const points = { show: false, filter: isolated, size: 4, fill: (u, i) => u.series[i].stroke(u, i) };
    const line = (one) => ({ stroke: color(one.color), width: one.width || 1.75, points, spanGaps: false });
    const dashed = (name) => ({ stroke: color(name), width: 1.25, dash: [5, 4], alpha: 0.65, points, spanGaps: false });
    const hasBefore = there.some((one) => one.before);
    if (this.options.stacked) {
      const areas = [...there].reverse().map((one) => ({ stroke: color(one.color), fill: color(one.color), width: 1, points, spanGaps: false }));
      return hasBefore ? [...areas, dashed("text")] : areas;
    }
    const only = there.length === 1 && !this.options.log;
    const lines = there.map((one) => (only ? { ...line(one), fill: `${color(one.color)}22` } : line(one)));
    return [...lines, ...there.filter((one) => one.before).map((one) => dashed(one.color))];
  }

  #build(there, shape, data) {
    this.#uplot?.destroy();
    this.plot.textContent = "";
    const isBytes = this.write(1024) === bytes(1024) || this.options.unit === "bytesRate";
    const axis = { stroke: color("muted"), font: "11px system-ui, sans-serif", grid: { stroke: color("grid"), width: 1 }, ticks: { show: false } };
    const narrow = this.plot.clientWidth < 420;
    this.#uplot = new uPlot({
      width: Math.max(100, Math.floor(this.plot.clientWidth)),
      height: this.options.height,
      padding: [8, 20, 0, 0],
      legend: { show: false },
      pxAlign: 1,
      cursor: { sync: { key: "sluice", setSeries: false }, drag: { x: true, y: false, setScale: false }, points: { size: 7 }, y: false },
      select: { show: true },
      scales: { x: { time: true }, y: this.options.log ? { distr: 3, log: isBytes ? 2 : 10 } : { range: (_, low, high) => this.#range(low, high) } },
      axes: [
        { ...axis, values: axisTime, space: narrow ? 64 : 76, size: 26, grid: { show: false } },
        { ...axis, size: narrow ? 58 : 70, gap: 4, space: 34, values: (_, splits) => splits.map((value) => (value === null ? "" : (axisWriters[this.options.unit] || this.write)(value))), ...(isBytes ? { incrs: BYTE_STEPS } : {}), ...(isBytes && this.options.log ? { filter: every32, grid: { ...axis.grid, filter: every32 } } : {}) },
      ],
      series: [{}, ...this.#series(there)],
      hooks: {
        setCursor: [(u) => this.#values(u.cursor.idx)],
        setSelect: [(u) => this.#zoom(u)],
        draw: [(u) => this.#drawMarks(u)],
      },
    }, data, this.plot);
    this.#uplot.root.setAttribute("aria-hidden", "true");
    this.#built = shape;
  }

  #range(low, high) {
    if (this.options.range) return this.options.range(low, high);
    if (this.options.unit === "share") {
      if (low === null) return [0, 1];
      const from = Math.max(0, Math.floor((low - 0.03) * 10) / 10);
      return [from, Math.max(1, high)];
    }
    return high === null || high <= 0 ? [0, 1] : [0, high * 1.06];
  }

  #zoom(u) {
    if (u.select.width < 8) return;
    const from = u.posToVal(u.select.left, "x");
    const to = u.posToVal(u.select.left + u.select.width, "x");
    u.setSelect({ left: 0, width: 0, top: 0, height: 0 }, false);
    if (to - from >= 5) set({ range: "", from: String(Math.floor(from)), to: String(Math.ceil(to)) });
  }

  #drawMarks(u) {
    const { ctx, bbox } = u;
    const { min, max } = u.scales.x;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    for (const { t, tone } of marks.list) {
      if (t < min || t > max) continue;
      const x = Math.round(u.valToPos(t, "x", true)) + 0.5;
      ctx.strokeStyle = color(tone || "muted");
      ctx.fillStyle = ctx.strokeStyle;
      ctx.setLineDash([3 * devicePixelRatio, 3 * devicePixelRatio]);
      ctx.beginPath();
      ctx.moveTo(x, bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      const size = 4 * devicePixelRatio;
      ctx.beginPath();
      ctx.moveTo(x - size, bbox.top);
      ctx.lineTo(x + size, bbox.top);
      ctx.lineTo(x, bbox.top + size * 1.4);
      ctx.fill();
    }
    ctx.restore();
  }

  /** Shows the values at a point in the legend, or the last ones. */
  #values(index) {
    const { feed } = this.options;
    const isPointed = index != null && feed.t[index] !== undefined;
    text(this.time, isPointed ? moment(feed.t[index], feed.step < 60) : "");
    for (const one of this.#drawn) {
      let at = isPointed ? index : one.values.length - 1;
      while (!isPointed && at > 0 && one.values[at] == null) at -= 1;
      this.legend.value(one.key, one.values[at], one.before ? one.before[at] : undefined);
    }
  }

  /** Returns the index of the first point that is shown. */
  #first() {
    const { feed } = this.options;
    const { min } = shownPeriod(feed);
    return Math.max(0, feed.t.findIndex((t) => t >= min));
  }

  /** Arrow keys move the pointer. */
  #key(event) {
    const { t } = this.options.feed;
    if (!this.#uplot || t.length === 0) return;
    const at = this.#uplot.cursor.idx ?? t.length - 1;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, PageUp: at - 20, PageDown: at + 20, Home: 0, End: t.length - 1 };
    if (event.key === "Escape") this.#point(null);
    else if (event.key in moves) this.#point(Math.max(this.#first(), Math.min(t.length - 1, moves[event.key])));
    else return;
    event.preventDefault();
  }

  #point(index) {
    if (!this.#uplot) return;
    const { t } = this.options.feed;
    const left = index === null ? -10 : this.#uplot.valToPos(t[index], "x");
    this.#uplot.setCursor({ left, top: index === null ? -10 : 10 });
    if (index !== null) say(`${moment(t[index])}: ${this.#drawn.map((one) => `${one.label} ${this.write(one.values[index])}`).join(", ")}`);
  }

  #flip() {
    const show = this.table.hidden;
    this.table.hidden = !show;
    this.plot.hidden = show;
    this.toggle.setAttribute("aria-expanded", String(show));
    text(this.toggle, show ? "Chart" : "Table");
    this.toggle.setAttribute("aria-label", `${this.options.title}: ${show ? "chart" : "table"}`);
    if (show) this.#fillTable();
    else this.rebuild();
  }

  #fillTable() {
    const { t } = this.options.feed;
    const first = this.#first();
    const every = Math.max(1, Math.ceil((t.length - first) / TABLE_ROWS));
    const rows = [];
    for (let i = t.length - 1; i >= first; i -= every) {
      rows.push(h("tr", h("th", { scope: "row" }, moment(t[i])), this.#drawn.map((one) => h("td.number", this.write(one.values[i])))));
    }
    const top = this.table.scrollTop;
    put(this.table, h("table",
      h("thead", h("tr", h("th", { scope: "col" }, "Time"), this.#drawn.map((one) => h("th", { scope: "col", class: "number" }, one.label)))),
      h("tbody", rows)));
    this.table.scrollTop = top;
  }
}
