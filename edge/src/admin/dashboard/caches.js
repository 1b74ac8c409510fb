// Caches and volumes: fill, hits, evictions, the load of each disk, and what another size would do.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { RATIOS, ROUTE_OUTCOMES, lift, line, over, plus } from "./metrics.js";
import { OUTCOME_SERIES } from "./overview.js";
import { badge, card, choice, choose, facts, failed, meter, note, refresh, trouble } from "./parts.js";
import { get as param, set } from "./state.js";
import { showTable } from "./table.js";
import { WHAT_IF, whatIf } from "./whatif.js";

const CACHE_SERIES = [...ROUTE_OUTCOMES, "bytes", "limit", "objects", "evicted", "evicted_age_seconds", "volume_hits", "volume_bytes"];
const VOLUME_SERIES = ["written_bytes", "record_bytes", "rewritten_bytes", "read_bytes", "reads", "read_ms", "shed", "shed_bytes", "queue_bytes",
  "disk_reads", "disk_read_ms", "disk_writes", "disk_write_ms", "disk_busy_ms", "disk_queue_ms"];

export function start(root, context) {
  const caches = h("div.grid", { id: "cache-cards" });
  const volumes = h("div.block");
  const charts = h("div.block");
  const curves = h("div.block");
  put(root, h("h1", "Caches and volumes"), caches, charts, curves, volumes);
  let names = "";
  let latest = null;
  const showHistories = () => {
    context.drop();
    showCharts(charts, context, Object.keys(latest.caches || {}));
    showVolumes(volumes, context, latest.volumes || []);
    showVolumeNumbers(latest.volumes || []);
  };
  context.every(3, async () => {
    const status = await get("status", {}, context.signal);
    latest = status;
    put(caches, Object.entries(status.caches || {}).map(([name, numbers]) => cacheCard(name, numbers, status)));
    if (Object.keys(status.caches || {}).length === 0) put(caches, note("No cache is configured."));
    const now = JSON.stringify([Object.keys(status.caches || {}), (status.volumes || []).map((one) => one.name)]);
    if (now !== names) {
      names = now;
      showHistories();
    }
    showVolumeNumbers(status.volumes || []);
  }, (error) => put(caches, failed(error)));
  context.onParams((changed) => {
    if (!changed.has("cache") && !changed.has("volume")) return false;
    const group = document.activeElement?.closest(".choice")?.getAttribute("aria-label");
    if (latest) showHistories();
    if (group) root.querySelector(`.choice[aria-label="${group}"] [aria-pressed="true"]`)?.focus({ preventScroll: true });
    return true;
  });
  context.every(10, async () => {
    const data = await get("what-if", {}, context.signal);
    whatIf(curves, data.caches || {}, context.shared.settings, latest);
  }, (error) => refresh(curves, error.message, () => [h("h2", WHAT_IF), card("Miss-ratio curves", trouble(error, "simulation of other sizes"))]));
}

function cacheCard(name, numbers, status) {
  const used = (status.volumes || []).filter((one) => (one.caches || []).includes(name));
  return h("section.card", { "aria-label": `Cache ${name}` },
    h("div.head", h("h2", name), h("span.note", used.length > 0 ? `memory and ${used.map((one) => one.name).join(", ")}` : "memory only")),
    h("div.gap"),
    meter("Memory", numbers.bytes, numbers.limit, format.bytes, "plain"),
    facts([
      ["Objects", format.exact(numbers.objects)],
      ["Evicted", format.exact(numbers.evicted)],
      ["Age of the last evicted", numbers.evicted > 0 ? format.span(numbers.evicted_age_seconds) : null],
      ["Pinned", format.bytes(numbers.pinned)],
      ["Fetches in progress", format.exact(numbers.flights)],
      ["Purge rules", format.exact(numbers.purges)],
      ["Hits on volumes", used.length > 0 ? format.exact(numbers.volume_hits) : null],
      ["Read from volumes", used.length > 0 ? format.bytes(numbers.volume_bytes) : null],
    ]));
}

function pick(label, key, names, chosen) {
  if (names.length < 2) return null;
  const options = names.map((name) => [name, name]);
  const group = choice(label, options, chosen, (name) => set({ [key]: name }, true));
  choose(group, options, chosen);
  return group;
}

function showCharts(box, context, names) {
  if (names.length === 0) return;
  const chosen = names.includes(param("cache")) ? param("cache") : names[0];
  const feed = context.feed({ scope: "cache", member: chosen, series: CACHE_SERIES, streamed: true });
  const chart = (options) => context.chart({ feed, ...options });
  put(box, h("div.head", h("h2", `History of ${chosen}`), pick("Cache", "cache", names, chosen)),
    h("div.grid.three",
      chart({ id: "c-hits", title: "Hit ratio", unit: "share", series: RATIOS }),
      chart({ id: "c-fill", title: "Memory against its limit", unit: "bytes", series: [
        line("used", "used", "hit", "bytes"), line("limit", "limit", "error")] }),
      chart({ id: "c-outcome", title: "Requests", stacked: true, series: OUTCOME_SERIES.slice(0, -1) }),
      chart({ id: "c-evicted", title: "Evictions", series: [line("evicted", "objects and blocks", "miss")] }),
      chart({ id: "c-age", title: "Time since the last use of what is evicted", unit: "seconds", note: "Short times mean that the cache is too small for what is requested.", series: [line("age", "age", "collapsed", "evicted_age_seconds")] }),
      chart({ id: "c-volume", title: "Found on volumes", series: [line("hits", "objects and blocks", "collapsed", "volume_hits")] })));
}

let shownVolumes = null;

function showVolumeNumbers(volumes) {
  if (!shownVolumes?.isConnected) return;
  showTable(shownVolumes, "Volumes", ["Volume", "State", "Size", "Records", "Write queue", "Written", "Rewritten", "Shed", "Damaged", "Errors", "Laps"], volumes.map((one) => [
    h("span", { title: one.path }, one.name), [badge(one.state), one.loaded < 1 ? ` ${format.share(one.loaded)}` : "", one.why ? h("span.note", ` ${one.why}`) : null],
    format.bytes(one.size), format.count(one.records), format.bytes(one.queue_bytes), format.bytes(one.written_bytes), format.bytes(one.rewritten_bytes),
    h("span", { class: one.shed > 0 ? "warn-text" : "" }, format.count(one.shed)), h("span", { class: one.damaged > 0 ? "bad-text" : "" }, format.count(one.damaged)), h("span", { class: one.errors > 0 ? "bad-text" : "" }, format.count(one.errors)), format.count(one.laps),
  ]), [2, 3, 4, 5, 6, 7, 8, 9, 10]);
}

/** Milliseconds per second as a share, or as a mean number. */
const perSecond = (column) => lift((ms) => ms / 1000, column);
const busy = (c) => lift((share) => Math.min(1, share), perSecond(c("disk_busy_ms")));
const queue = (c) => perSecond(c("disk_queue_ms"));
const waited = (c) => over(perSecond(plus(c("disk_read_ms"), c("disk_write_ms"))), plus(c("disk_reads"), c("disk_writes")));
const ownRead = (c) => over(perSecond(c("read_ms")), c("reads"));
const amplification = (c) => over(c("written_bytes"), c("record_bytes"));

function showVolumes(box, context, volumes) {
  if (volumes.length === 0) {
    put(box, h("h2", "Volumes"), h("div.card", note("No volume is configured: the caches keep everything in memory.")));
    return;
  }
  const names = volumes.map((one) => one.name);
  const chosen = names.includes(param("volume")) ? param("volume") : names[0];
  shownVolumes = h("div.card");
  const feed = context.feed({ scope: "volume", member: chosen, series: VOLUME_SERIES, streamed: true });
  const chart = (options) => context.chart({ feed, ...options });
  put(box, h("h2", "Volumes"), shownVolumes, h("div.head", h("h2", `Load of ${chosen}`), pick("Volume", "volume", names, chosen)),
    h("div.grid.three",
      chart({ id: "v-busy", title: "Busy", note: "Share of the time in which the disk worked, for any program (iostat).", unit: "share", range: () => [0, 1], series: [line("busy", "busy", "miss", busy)] }),
      chart({ id: "v-queue", title: "Queue", note: "Mean number of requests that the disk had to serve.", unit: "count", series: [line("queue", "requests", "collapsed", queue)] }),
      chart({ id: "v-await", title: "Await", note: "Mean time of one read or write, with the time in the queue.", unit: "seconds", series: [line("await", "time", "p99", waited)] }),
      chart({ id: "v-io", title: "Read and written", unit: "bytesRate", series: [
        line("read", "read", "hit", "read_bytes"), line("written", "written", "collapsed", "written_bytes"), line("rewritten", "rewritten", "pass", "rewritten_bytes")] }),
      chart({ id: "v-shed", title: "Shed writes", note: "Records that were not written because the queue was full.", series: [line("shed", "shed", "error")] }),
      chart({ id: "v-amp", title: "Write amplification", note: "Bytes written for each byte of a record.", unit: "count", series: [line("amp", "factor", "pass", amplification)] }),
      chart({ id: "v-read", title: "Time of one read", note: "Reads of this volume, also those from the page cache.", unit: "seconds", series: [line("read", "mean", "p95", ownRead)] }),
      chart({ id: "v-wait", title: "Waiting to be written", unit: "bytes", series: [line("queue", "in the queue", "miss", "queue_bytes")] })));
}
