// Caches and volumes: fill, hits, evictions, the load of each disk, and what another size would do.

import { get } from "./api.js";
import { h, put } from "./dom.js";
import * as format from "./format.js";
import { ROUTE_OUTCOMES, lift, outcome, over, plus } from "./metrics.js";
import { badge, card, choice, choose, facts, failed, meter, note, refresh, trouble } from "./parts.js";
import { get as param, set } from "./state.js";
import { showTable } from "./table.js";
import { whatIf } from "./whatif.js";

const CACHE_SERIES = [...ROUTE_OUTCOMES, "bytes", "limit", "objects", "evicted", "evicted_age_seconds", "volume_hits", "volume_bytes"];
const VOLUME_SERIES = ["written_bytes", "record_bytes", "rewritten_bytes", "read_bytes", "reads", "read_ms", "shed", "shed_bytes", "queue_bytes",
  "disk_reads", "disk_read_ms", "disk_writes", "disk_write_ms", "disk_busy_ms", "disk_queue_ms"];

export function start(root, context) {
  const caches = h("div", { class: "grid", id: "cache-cards" });
  const volumes = h("div", { class: "block" });
  const charts = h("div", { class: "block" });
  const curves = h("div", { class: "block" });
  put(root, h("h1", null, "Caches and volumes"), caches, charts, curves, volumes);
  let names = "";
  let latest = null;
  const showHistories = () => {
    context.drop();
    showCharts(charts, context, Object.keys(latest.caches || {}));
    showVolumes(volumes, context, latest.volumes || []);
    showVolumeNumbers(latest.volumes || []);
  };
  context.every(3, async () => {
    try {
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
    } catch (error) {
      if (!context.signal.aborted) put(caches, failed(error));
    }
  });
  context.onParams((changed) => {
    if (!changed.has("cache") && !changed.has("volume")) return false;
    const group = document.activeElement?.closest(".choice")?.getAttribute("aria-label");
    if (latest) showHistories();
    if (group) root.querySelector(`.choice[aria-label="${group}"] [aria-pressed="true"]`)?.focus({ preventScroll: true });
    return true;
  });
  const showWhatIf = async () => {
    try {
      const data = await get("what-if", {}, context.signal);
      whatIf(curves, data.caches || {}, context.shared.settings, latest);
    } catch (error) {
      if (!context.signal.aborted) refresh(curves, error.message, () => [h("h2", null, "What if the cache were larger?"), card("Miss-ratio curves", trouble(error, "simulation of other sizes"))]);
    }
  };
  context.every(10, showWhatIf);
}

function cacheCard(name, numbers, status) {
  const used = (status.volumes || []).filter((one) => (one.caches || []).includes(name));
  return h("section", { class: "card", "aria-label": `Cache ${name}` },
    h("div", { class: "head" }, h("h2", null, name), h("span", { class: "note" }, used.length > 0 ? `memory and ${used.map((one) => one.name).join(", ")}` : "memory only")),
    h("div", { class: "gap" }),
    meter("Memory", numbers.bytes, numbers.limit, format.bytes, "plain"),
    facts([
      ["Objects", format.exact(numbers.objects)],
      ["Evicted", format.exact(numbers.evicted)],
      ["Age of the last evicted", numbers.evicted_age_seconds === undefined ? null : format.span(numbers.evicted_age_seconds)],
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
  put(box, h("div", { class: "head" }, h("h2", null, `History of ${chosen}`), pick("Cache", "cache", names, chosen)),
    h("div", { class: "grid three" },
      chart({ id: "c-hits", title: "Hit ratio", unit: "share", series: [
        { key: "requests", label: "by requests", color: "hit", of: outcome.ratio }, { key: "bytes", label: "by bytes", color: "collapsed", of: outcome.byteRatio }] }),
      chart({ id: "c-fill", title: "Memory against its limit", unit: "bytes", series: [
        { key: "used", label: "used", color: "hit", of: (c) => c("bytes") }, { key: "limit", label: "limit", color: "error", of: (c) => c("limit") }] }),
      chart({ id: "c-outcome", title: "Requests", unit: "rate", stacked: true, series: [
        { key: "hit", label: "hit", color: "hit", of: outcome.hits }, { key: "validated", label: "validated", color: "validated", of: outcome.validated },
        { key: "collapsed", label: "collapsed", color: "collapsed", of: outcome.collapsed }, { key: "miss", label: "miss", color: "miss", of: outcome.misses }, { key: "pass", label: "pass", color: "pass", of: outcome.passes }] }),
      chart({ id: "c-evicted", title: "Evictions", unit: "rate", series: [{ key: "evicted", label: "objects and blocks", color: "miss", of: (c) => c("evicted") }] }),
      chart({ id: "c-age", title: "Time since the last use of what is evicted", unit: "seconds", note: "Short times mean that the cache is too small for what is requested.", series: [{ key: "age", label: "age", color: "collapsed", of: (c) => c("evicted_age_seconds") }] }),
      chart({ id: "c-volume", title: "Found on volumes", unit: "rate", series: [{ key: "hits", label: "objects and blocks", color: "collapsed", of: (c) => c("volume_hits") }] })));
}

let shownVolumes = null;

function showVolumeNumbers(volumes) {
  if (!shownVolumes?.isConnected) return;
  showTable(shownVolumes, "Volumes", ["Volume", "State", "Size", "Records", "Write queue", "Written", "Rewritten", "Shed", "Damaged", "Errors", "Laps"], volumes.map((one) => [
    h("span", { title: one.path }, one.name), [badge(one.state), one.loaded < 1 ? ` ${format.share(one.loaded)}` : "", one.why ? h("span", { class: "note" }, ` ${one.why}`) : null],
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
    put(box, h("h2", null, "Volumes"), h("div", { class: "card" }, note("No volume is configured: the caches keep everything in memory.")));
    return;
  }
  const names = volumes.map((one) => one.name);
  const chosen = names.includes(param("volume")) ? param("volume") : names[0];
  shownVolumes = h("div", { class: "card" });
  const feed = context.feed({ scope: "volume", member: chosen, series: VOLUME_SERIES, streamed: true });
  const chart = (options) => context.chart({ feed, ...options });
  put(box, h("h2", null, "Volumes"), shownVolumes, h("div", { class: "head" }, h("h2", null, `Load of ${chosen}`), pick("Volume", "volume", names, chosen)),
    h("div", { class: "grid three" },
      chart({ id: "v-busy", title: "Busy", note: "Share of the time in which the disk worked, for any program (iostat).", unit: "share", range: () => [0, 1], series: [{ key: "busy", label: "busy", color: "miss", of: busy }] }),
      chart({ id: "v-queue", title: "Queue", note: "Mean number of requests that the disk had to serve.", unit: "count", series: [{ key: "queue", label: "requests", color: "collapsed", of: queue }] }),
      chart({ id: "v-await", title: "Await", note: "Mean time of one read or write, with the time in the queue.", unit: "seconds", series: [{ key: "await", label: "time", color: "p99", of: waited }] }),
      chart({ id: "v-io", title: "Read and written", unit: "bytesRate", series: [
        { key: "read", label: "read", color: "hit", of: (c) => c("read_bytes") }, { key: "written", label: "written", color: "collapsed", of: (c) => c("written_bytes") }, { key: "rewritten", label: "rewritten", color: "pass", of: (c) => c("rewritten_bytes") }] }),
      chart({ id: "v-shed", title: "Shed writes", note: "Records that were not written because the queue was full.", unit: "rate", series: [{ key: "shed", label: "shed", color: "error", of: (c) => c("shed") }] }),
      chart({ id: "v-amp", title: "Write amplification", note: "Bytes written for each byte of a record.", unit: "count", series: [{ key: "amp", label: "factor", color: "pass", of: amplification }] }),
      chart({ id: "v-read", title: "Time of one read", note: "Reads of this volume, also those from the page cache.", unit: "seconds", series: [{ key: "read", label: "mean", color: "p95", of: ownRead }] }),
      chart({ id: "v-wait", title: "Waiting to be written", unit: "bytes", series: [{ key: "queue", label: "in the queue", color: "miss", of: (c) => c("queue_bytes") }] })));
}
