// The curves of the hit ratio for other sizes of a cache, and what these would save.

import { h, put, svg } from "./dom.js";
import * as format from "./format.js";
import { legend, note, refresh } from "./parts.js";
import { showTable } from "./table.js";

const [WIDTH_MIN, WIDTH_MAX, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [280, 560, 230, 46, 24, 12, 34];
/** Room that the name of a size needs, in pixels. */
const NAME_WIDTH = 52;

/** Shows the curve of each cache. Further calls keep the parts that have the focus or are open. */
export function whatIf(box, caches, settings, status) {
  const names = Object.keys(caches);
  refresh(box, JSON.stringify(names), () => [h("h2", null, "What if the cache were larger?"),
    names.length === 0 ? h("div", { class: "card" }, note("No cache is simulated yet.")) : h("div", { class: "grid" }, names.map((name) => h("section", { class: "card", "aria-label": `What-if of ${name}`, "data-name": name })))]);
  for (const section of box.querySelectorAll("[data-name]")) curve(section, section.dataset.name, caches[section.dataset.name], settings, originRate(status, section.dataset.name));
}

/** Bytes per second that the origins have sent for a cache since the start. */
function originRate(status, name) {
  const bytes = status?.cache_traffic?.[name]?.upstream_bytes;
  return status?.uptime_s > 0 && bytes > 0 ? bytes / status.uptime_s : 0;
}

function curve(section, name, data, settings, rate) {
  const points = (data.points || []).filter((one) => typeof one.hit_ratio === "number");
  if (points.length < 2) {
    refresh(section, "few", () => [h("h3", null, name), note("Too few requests have been sampled yet.")]);
    return;
  }
  const now = points.find((one) => one.times === 1) || points[Math.floor(points.length / 2)];
  refresh(section, "curve", () => [h("div"), h("details", null, h("summary", null, "Values"), h("div"))]);
  const [shown, details] = section.children;
  put(shown, h("div", { class: "head" }, h("h3", null, name), h("span", { class: "note" }, `${format.count(data.references)} requests simulated${data.sampled < 1 ? `, 1 of ${format.count(1 / data.sampled)} sampled` : ""}`)),
    sentence(points, now, settings, rate), picture(name, points, now, data, Math.min(WIDTH_MAX, Math.max(WIDTH_MIN, shown.clientWidth))));
  values(details.lastChild, name, points, now);
}

/** Tells what twice the size would save, or that it would not. */
function sentence(points, now, settings, rate) {
  const twice = points.find((one) => one.times === 2 * now.times);
  const half = points.find((one) => one.times === now.times / 2);
  if (!twice) return null;
  const gain = twice.hit_ratio - now.hit_ratio;
  const less = now.byte_hit_ratio < 1 ? (twice.byte_hit_ratio - now.byte_hit_ratio) / (1 - now.byte_hit_ratio) : 0;
  const price = settings?.price_per_gb ?? 0;
  const saved = price > 0 && rate > 0 && gain > 0.005 ? rate * Math.max(0, less) * 30 * 86400 / 1e9 * price : null;
  const parts = [h("strong", null, `With twice the size (${format.bytes(twice.bytes)}) the hit ratio would be ${format.share(twice.hit_ratio)}`), ` in place of ${format.share(now.hit_ratio)}: `,
    gain > 0.005 ? `the origins would send ${format.share(Math.max(0, less))} fewer bytes for it` : "hardly a gain", saved === null ? ". " : `, which saves ${format.money(saved, settings.price_currency ?? "$")} a month. `];
  if (half && now.hit_ratio - half.hit_ratio < 0.01) parts.push(`Half the size would do, too (${format.share(half.hit_ratio)}).`);
  return h("p", { class: "curve-text" }, parts);
}

/** Draws the curve in this width, in pixels of the page. */
function picture(name, points, now, data, width) {
  const ratios = points.flatMap((one) => [one.hit_ratio, one.byte_hit_ratio]).filter((one) => typeof one === "number");
  const low = Math.max(0, Math.floor((Math.min(...ratios) - 0.03) * 10) / 10);
  const logs = points.map((one) => Math.log2(one.times));
  const x = (times) => LEFT + ((Math.log2(times) - logs[0]) / (logs[logs.length - 1] - logs[0])) * (width - LEFT - RIGHT);
  const y = (ratio) => TOP + (1 - (ratio - low) / (1 - low)) * (HEIGHT - TOP - BOTTOM);
  const line = (key) => points.map((one, i) => `${i === 0 ? "M" : "L"}${x(one.times).toFixed(1)} ${y(one[key]).toFixed(1)}`).join("");
  const every = Math.ceil(NAME_WIDTH / ((width - LEFT - RIGHT) / (points.length - 1)));
  const steps = [];
  for (let ratio = low; ratio <= 1.0001; ratio += (1 - low) / 4) steps.push(ratio);
  const figure = svg("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, class: "curve", role: "img", "aria-label": `Hit ratio of ${name} for other sizes. The table below has the values.` },
    steps.map((ratio) => [svg("line", { x1: LEFT, x2: width - RIGHT, y1: y(ratio), y2: y(ratio), class: "grid-line" }), svg("text", { x: LEFT - 6, y: y(ratio) + 4, class: "tick end" }, format.share(ratio))]),
    points.map((one) => svg("text", { x: x(one.times), y: HEIGHT - 16, class: "tick middle" }, `${one.times}×`)),
    points.filter((_, i) => i % every === 0).map((one) => svg("text", { x: x(one.times), y: HEIGHT - 2, class: "tick middle small" }, format.bytes(one.bytes))),
    svg("line", { x1: x(now.times), x2: x(now.times), y1: TOP, y2: HEIGHT - BOTTOM, class: "now-line" }),
    svg("path", { d: line("byte_hit_ratio"), class: "curve-line bytes" }), svg("path", { d: line("hit_ratio"), class: "curve-line" }),
    points.map((one) => svg("circle", { cx: x(one.times), cy: y(one.hit_ratio), r: 3.5, class: "curve-dot" })),
    typeof data.measured?.hit_ratio === "number" && data.measured.hit_ratio >= low ? svg("circle", { cx: x(now.times), cy: y(data.measured.hit_ratio), r: 6, class: "measured" }) : null);
  return h("div", null, figure, h("ul", { class: "legend keys" }, legend("hit", "by requests"), legend("collapsed", "by bytes"), data.measured ? legend("miss", "measured now") : null));
}

function values(box, name, points, now) {
  showTable(box, `Hit ratio of ${name} by size`, ["Size", "Bytes", "Hit ratio", "By bytes", "Change"], points.map((one) => [
    `${one.times}×`, format.bytes(one.bytes), format.share(one.hit_ratio), format.share(one.byte_hit_ratio), one === now ? "–" : `${format.points(one.hit_ratio - now.hit_ratio)} points`]), [1, 2, 3, 4]);
}
