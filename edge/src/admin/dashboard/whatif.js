// The curves of the hit ratio for other sizes of a cache, and what these would save.

import { h, put, svg } from "./dom.js";
import * as format from "./format.js";
import { legend, note, refresh } from "./parts.js";
import { showTable } from "./table.js";

const [WIDTH_MIN, WIDTH_MAX, HEIGHT, LEFT, RIGHT, TOP, BOTTOM] = [280, 560, 230, 46, 24, 12, 34];
/** Room that the name of a size needs, in pixels. */
const NAME_WIDTH = 52;

export const WHAT_IF = "What if the cache were larger?";

/** Shows the curve of each cache. Further calls keep the parts that have the focus or are open. */
export function whatIf(box, caches, settings, status) {
  const names = Object.keys(caches);
  refresh(box, JSON.stringify(names), () => [h("h2", WHAT_IF),
    names.length === 0 ? h("div.card", note("No cache is simulated yet.")) : h("div.grid", names.map((name) => h("section.card", { "aria-label": `What-if of ${name}`, "data-name": name })))]);
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
    refresh(section, "few", () => [h("h3", name), note("Too few requests have been sampled yet.")]);
    return;
  }
  const now = points.find((one) => one.times === 1) || points[Math.floor(points.length / 2)];
  refresh(section, "curve", () => [h("div"), h("details", h("summary", "Values"), h("div"))]);
  const [shown, details] = section.children;
  put(shown, h("div.head", h("h3", name), h("span.note", `${format.count(data.references)} requests simulated${data.sampled < 1 ? `, 1 of ${format.count(1 / data.sampled)} sampled` : ""}`)),
    sentence(points, now, data.measured?.hit_ratio, settings, rate), picture(name, points, now, data, Math.min(WIDTH_MAX, Math.max(WIDTH_MIN, shown.clientWidth))));
  values(details.lastChild, name, points, now);
}

/** Tells what twice and half the size would change. All clauses stay when the numbers change a little. */
function sentence(points, now, measured, settings, rate) {
  const twice = points.find((one) => one.times === 2 * now.times);
  const half = points.find((one) => one.times === now.times / 2);
  if (!twice) return null;
  const change = (one) => format.points(one.hit_ratio - now.hit_ratio);
  const less = now.byte_hit_ratio < 1 ? Math.max(0, (twice.byte_hit_ratio - now.byte_hit_ratio) / (1 - now.byte_hit_ratio)) : 0;
  const price = settings?.price_per_gb ?? 0;
  const saved = price > 0 && rate > 0 ? `, which saves ${format.money(rate * less * 30 * 86400 / 1e9 * price, settings.price_currency ?? "$")} a month` : "";
  return h("p.curve-text",
    h("strong", `Twice the size (${format.bytes(twice.bytes)}) would change the hit ratio by ${change(twice)} percentage points`), half ? `, half the size (${format.bytes(half.bytes)}) by ${change(half)}. ` : ". ",
    `The simulation gives ${format.share(now.hit_ratio)} for this size and ${format.share(twice.hit_ratio)} for twice the size`, typeof measured === "number" ? `; ${format.share(measured)} was measured over the same requests. ` : ". ",
    `With twice the size, the origins would send ${format.share(less)} fewer bytes for this cache${saved}.`);
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
  return h("div", figure, h("ul.legend.keys", legend("hit", "by requests"), legend("collapsed", "by bytes"), data.measured ? legend("miss", "measured now") : null));
}

function values(box, name, points, now) {
  showTable(box, `Hit ratio of ${name} by size`, ["Size", "Bytes", "Hit ratio", "By bytes", "Change"], points.map((one) => [
    `${one.times}×`, format.bytes(one.bytes), format.share(one.hit_ratio), format.share(one.byte_hit_ratio), one === now ? "–" : `${format.points(one.hit_ratio - now.hit_ratio)} points`]), [1, 2, 3, 4]);
}
