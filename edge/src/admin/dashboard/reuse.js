// Which request went over which connection: a row for each connection to a server, with a bar for each request.

import { get } from "./api.js";
import { color, h, put, say, text } from "./dom.js";
import * as format from "./format.js";
import { choice, choose, legend } from "./parts.js";

const RANGES = [[1, "1 s"], [10, "10 s"], [60, "60 s"]];
const KEYS = [["pass", "connect"], ["hit", "2xx"], ["validated", "3xx"], ["miss", "4xx"], ["error", "5xx, failed, closed by the server"], ["other", "cancelled"], ["collapsed", "in progress"]];
/** Heights of a row and of one of several lanes in a row, width of the names, most rows of a server. */
const [ROW, LANE, LEFT, ROWS] = [14, 6, 46, 30];

const plural = (n, what) => `${format.exact(n)} ${what}${n === 1 ? "" : "s"}`;
const tone = (one) => ({ "in progress": "collapsed", failed: "error", cancelled: "other" })[one.end] || { 3: "validated", 4: "miss", 5: "error" }[Math.floor(one.status / 100)] || "hit";

/** Returns the picture for the upstream whose name `name` returns. */
export function reuse(context, name) {
  let [data, seconds, bars, at] = [null, 10, [], -1];
  const canvas = h("canvas", { "aria-hidden": "true" });
  const plot = h("div.plot", { tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": "Requests by connection", onkeydown: key, onblur: () => point(-1), onmousemove: hover, onmouseleave: () => point(-1) }, canvas);
  const [sentence, where] = [h("p"), h("p.note", { "aria-hidden": "true" })];
  const ranges = choice("Time", RANGES, seconds, (value) => { [seconds, at] = [value, -1]; choose(ranges, RANGES, value); draw(); });
  new ResizeObserver(draw).observe(plot);

  context.every(1, async () => {
    // A request that is pointed at does not move.
    if (!name() || at >= 0) return;
    data = await get("servers/connections", { upstream: name(), n: 1000 }, context.signal);
    root.hidden = false;
    draw();
  }, (error) => text(sentence, `Not available: ${error.message}`));

  function draw() {
    const width = plot.clientWidth;
    if (!data || width === 0) return;
    const now = data.now_us;
    const from = now - seconds * 1e6;
    const x = (t) => LEFT + Math.max(0, (t - from) / (now - from)) * (width - LEFT - 2);
    let [y, requests, used, opened, hidden, oldest] = [0, 0, 0, 0, 0, now];
    const rows = [];
    bars = [];
    for (const { address, connections } of data.servers) {
      const list = connections.filter((c) => (c.closed_us ?? now) >= from);
      if (list.length === 0) continue;
      rows.push({ y, label: address });
      y += ROW + 4;
      list.forEach((c, i) => {
        const lanes = [];
        const row = { y, c, label: `#${c.number}`, bars: [] };
        for (const one of c.exchanges) {
          const end = one.ended_us ?? now;
          if (end < from) continue;
          oldest = Math.min(oldest, one.began_us);
          const free = lanes.findIndex((until) => until <= one.began_us);
          const lane = free < 0 ? lanes.length : free;
          lanes[lane] = end;
          row.bars.push({ one, row, lane, x: x(one.began_us), w: Math.max(2, x(end) - x(one.began_us)) });
        }
        requests += row.bars.length;
        used += row.bars.length > 0;
        opened += c.opened_us >= from;
        if (i < list.length - ROWS) {
          hidden += 1;
          return;
        }
        const high = lanes.length > 1 ? LANE : ROW - 2;
        row.h = high * Math.max(1, lanes.length);
        for (const bar of row.bars) bars.push(Object.assign(bar, { y: y + bar.lane * high, h: high - 1 }));
        rows.push(row);
        y += row.h + 3;
      });
    }
    paint(rows, width, y + ROW, x);
    put(sentence, h("strong", `${plural(requests, "request")} over ${plural(used, "connection")}`, used > 0 ? `: ${format.count(requests / used)} for each` : ""), `; ${plural(opened, "new connection")} in ${seconds} s.`,
      oldest > from && requests > 0 ? ` The records begin ${format.micros(now - oldest)} ago.` : "", hidden > 0 ? ` ${plural(hidden, "older connection")} not shown.` : "");
  }

  function paint(rows, width, height, x) {
    const ratio = devicePixelRatio;
    [canvas.width, canvas.height] = [width * ratio, height * ratio];
    canvas.style.setProperty("height", `${height}px`);
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.font = "11px system-ui, sans-serif";
    const rect = (fill, ...box) => { g.fillStyle = color(fill); g.fillRect(...box); };
    const write = (label, left, y, align) => { g.fillStyle = color("muted"); g.textAlign = align; g.fillText(label, left, y); };
    const now = data.now_us;
    for (const [part, align] of [[1, "left"], [0.5, "center"], [0, "right"]]) {
      const left = x(now - part * seconds * 1e6);
      rect("grid", left, 0, 1, height - ROW);
      write(part ? `${part * seconds} s ago` : "now", left, height - 3, align);
    }
    for (const { y, h: high, c, label, bars: list } of rows) {
      write(label, 0, y + ROW - 4, "left");
      if (!c) continue;
      const [tried, begin, close] = [c.opened_us - c.connect_us, c.opened_us, c.closed_us ?? now].map(x);
      rect("line", begin, y + high / 2 - 1, close - begin, 2);
      if (begin > LEFT) rect("pass", tried - 2, y, Math.max(2, begin - tried), high);
      for (const bar of list) rect(tone(bar.one), bar.x, bar.y, bar.w, bar.h);
      if (c.closed_us) rect(c.closed_by === "server" ? "error" : "text", close, y - 1, 2, high + 1);
    }
    const shown = bars[at];
    g.strokeStyle = color("text");
    if (shown) g.strokeRect(shown.x - 1, shown.y - 1, shown.w + 2, shown.h + 2);
  }

  function point(index) {
    if (index === at) return;
    at = index;
    text(where, at < 0 ? "" : said(bars[at]));
    draw();
  }

  function hover({ offsetX, offsetY }) {
    point(bars.findIndex((bar) => offsetX >= bar.x - 1 && offsetX <= bar.x + bar.w + 1 && offsetY >= bar.y && offsetY <= bar.y + bar.h));
  }

  /** Arrow keys go to the requests before and after, and to other connections. */
  function key(event) {
    const y = bars[at]?.row.y ?? -1;
    const moves = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: bars.length - 1, ArrowUp: bars.findLastIndex((bar) => bar.row.y < y), ArrowDown: bars.findIndex((bar) => bar.row.y > y) };
    const to = moves[event.key] ?? -1;
    if (event.key === "Escape") point(-1);
    else if (!(event.key in moves)) return;
    else if (bars[to]) {
      point(to);
      say(where.textContent);
    }
    event.preventDefault();
  }

  function said({ one, row: { c } }) {
    return [one.path, one.status, one.end, one.reason, format.micros((one.ended_us ?? data.now_us) - one.began_us), one.head_us && `head after ${format.micros(one.head_us)}`, format.bytes(one.bytes), `request ${one.nth} of connection ${c.number}, ${c.protocol}`,
      one.nth === 1 && `connected in ${format.micros(c.connect_us)}`, c.tls_us && `TLS in ${format.micros(c.tls_us)}`].filter(Boolean).join(" · ");
  }

  const root = h("section.block", { hidden: true, "aria-label": "Requests by connection" }, h("div.head", h("h2", "Requests by connection"), ranges),
    h("div.card.byte-map", sentence, h("ul.legend.keys", KEYS.map((one) => legend(...one))), plot, where));
  return root;
}
