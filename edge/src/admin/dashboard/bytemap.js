// A picture of the bytes of an object: in memory, on volumes, in flight, missing.

import { color, h } from "./dom.js";
import * as format from "./format.js";
import { legend } from "./parts.js";

const ROW = 22;
const GAP = 4;

/** Bytes of an inclusive range, which may have no known end. */
const end = (span, length) => (span.last == null ? length : Math.min(length, span.last + 1));
const total = (spans, length) => spans.reduce((sum, span) => sum + Math.max(0, end(span, length) - span.first), 0);

/** Returns the places of an object's bytes, each with its spans. */
function places(object) {
  const flying = object.in_flight || [];
  const list = [["Memory", "hit", object.stored || []]];
  for (const volume of object.volumes || []) list.push([`Volume ${volume.volume}`, "collapsed", volume.stored || []]);
  list.push(["In flight", "miss", flying], ["Missing", "error", object.missing || []]);
  return list.filter(([name, , spans]) => spans.length > 0 || name === "Memory");
}

/** Returns the picture, and a list of the same as text. */
export function byteMap(object) {
  const known = [...(object.stored || []), ...(object.in_flight || []), ...(object.missing || [])].map((span) => (span.last ?? span.first) + 1);
  const length = object.length ?? Math.max(1, ...known);
  const list = places(object);
  const canvas = h("canvas", { role: "img", "aria-label": `Bytes of the object: ${list.map(([name, , spans]) => `${name} ${format.bytes(total(spans, length))}`).join(", ")}` });
  const where = h("span.note", { "aria-hidden": "true" });
  canvas.addEventListener("mousemove", (event) => {
    const at = Math.floor((event.offsetX / canvas.clientWidth) * length);
    const row = list[Math.floor(event.offsetY / (ROW + GAP))];
    const inside = row && row[2].find((span) => span.first <= at && at < end(span, length));
    where.textContent = `byte ${format.exact(at)}${inside ? `: ${row[0].toLowerCase()}, ${format.exact(inside.first)}–${format.exact(end(inside, length) - 1)}` : ""}`;
  });
  canvas.addEventListener("mouseleave", () => { where.textContent = ""; });
  canvas.style.setProperty("height", `${list.length * (ROW + GAP)}px`);
  new ResizeObserver(() => paint(canvas, list, length)).observe(canvas);
  const names = h("ul.legend.keys", list.map(([name, tone, spans]) => legend(tone, name,
    h("span.value", format.bytes(total(spans, length))), h("span.before", format.share(length > 0 ? total(spans, length) / length : null)))));
  const scale = h("div.scale", { "aria-hidden": "true" }, [0, 0.25, 0.5, 0.75, 1].filter((part) => length > 99 || Number.isInteger(length * part)).map((part) => h("span", format.bytes(Math.round(length * part)))));
  return h("div.byte-map", names, canvas, scale, where);
}

function paint(canvas, list, length) {
  const ratio = devicePixelRatio || 1;
  const width = canvas.clientWidth;
  const height = list.length * (ROW + GAP);
  if (width === 0) return;
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const context = canvas.getContext("2d");
  context.scale(ratio, ratio);
  list.forEach(([, tone, spans], i) => {
    const y = i * (ROW + GAP);
    context.fillStyle = color("raised");
    context.fillRect(0, y, width, ROW);
    context.fillStyle = color(tone);
    for (const span of spans) {
      const x = (span.first / length) * width;
      const to = (end(span, length) / length) * width;
      context.fillRect(x, y, Math.max(1, to - x), ROW);
    }
  });
}
