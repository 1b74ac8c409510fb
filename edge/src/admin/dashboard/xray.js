// The X-ray of a URL: key, variants, freshness, bytes, fetches and decisions; and the tester, which tells what a request
// would do.

import { get, getWithHeaders, post } from "./api.js";
import { byteMap } from "./bytemap.js";
import { h, put, say, uid } from "./dom.js";
import * as format from "./format.js";
import { ask, badge, facts, note, order, toast, trouble } from "./parts.js";
import { meaning } from "./reasons.js";
import { get as param, set } from "./state.js";
import { plainTable } from "./table.js";

const METHODS = ["GET", "HEAD", "POST", "PUT", "DELETE", "PURGE"];

function field(label, input) {
  const id = uid("field");
  input.id = id;
  return h("div.field", h("label", { for: id }, label), input);
}

export function start(root, context) {
  const url = h("input", { type: "text", inputmode: "url", required: true, value: param("url"), placeholder: "https://www.example.com/path?query", spellcheck: "false", autocomplete: "off", maxlength: "65536" });
  const headers = h("textarea", { rows: "2", placeholder: "Accept-Encoding: gzip", spellcheck: "false" });
  headers.value = param("headers");
  const method = h("select", METHODS.map((one) => h("option", { selected: one === param("method", "GET") }, one)));
  const client = h("input", { type: "text", value: param("client"), placeholder: "203.0.113.9", spellcheck: "false" });
  const objects = h("div.block");
  const answer = h("div.block");
  const more = h("details", { open: Boolean(param("headers") || param("client") || param("method")) }, h("summary", "Method, headers and client of the request"),
    h("div.form.two", field("Headers, one on each line", headers), h("div.form", field("Method", method), field("Address of the client", client))));
  const form = h("form.card.form", { onsubmit: (event) => {
    event.preventDefault();
    set({ url: url.value.trim(), headers: headers.value.trim(), method: method.value === "GET" ? "" : method.value, client: client.value.trim() });
  } }, h("div.form.inline", field("URL, as clients send it", url), h("button.primary", "Look")), more);
  put(root, h("h1", "X-ray"), form, h("div.xray", objects, answer));
  let asked = 0;
  let busy = false;
  const load = async (withAnswer = false, speak = withAnswer) => {
    if (busy && !withAnswer) return;
    // The answers for an earlier URL are not shown any more.
    asked += 1;
    const mine = asked;
    const isNewest = () => mine === asked && !context.signal.aborted;
    if (!param("url")) {
      put(objects, h("div.card", note("Give a URL to see what is stored of it, why, and what Sluice would do with a request for it. Nothing is sent.")));
      put(answer);
      delete objects.dataset.key;
      busy = false;
      return;
    }
    busy = true;
    try {
      await Promise.all([showObjects(objects, context, isNewest, () => load(true, false)), withAnswer ? explain(answer, context, isNewest) : null]);
    } finally {
      if (mine === asked) busy = false;
    }
    if (speak && isNewest()) say("The X-ray is shown");
  };
  context.onParams(() => {
    url.value = param("url");
    headers.value = param("headers");
    method.value = param("method", "GET");
    client.value = param("client");
    load(true);
    return true;
  });
  load(true);
  context.every(2, () => (document.activeElement?.closest("dialog") ? null : load()));
}

async function showObjects(box, context, isNewest, again) {
  let found;
  try {
    found = await getWithHeaders("status", { url: param("url"), headers: param("headers") || undefined }, context.signal);
  } catch (error) {
    if (!isNewest()) return;
    put(box, h("div.card", trouble(error, "X-ray")));
    delete box.dataset.key;
    return;
  }
  if (!isNewest()) return;
  const caches = Array.isArray(found.data) ? found.data : found.data.caches || [];
  const key = JSON.stringify([param("url"), param("headers"), context.isOperator, caches], (name, value) => (["ago_ms", "age_ms", "idle_ms", "fresh_for_s", "age_s"].includes(name) ? undefined : value)) + Math.floor(Date.now() / 6000);
  if (box.dataset.key === key) return;
  box.dataset.key = key;
  const focus = box.contains(document.activeElement) ? document.activeElement.textContent : null;
  const open = new Set([...box.querySelectorAll("details[open]")].map((one) => one.dataset.name));
  const all = caches.flatMap((cache) => (cache.objects || []).map((object) => ({ cache: cache.cache, object })));
  put(box, h("div.head", h("h2", all.length === 0 ? "Nothing is stored" : `Stored: ${all.length} ${all.length === 1 ? "object" : "variants"}`), context.isOperator ? orders(again) : null),
    all.length === 0 ? h("div.card", note(found.headers.get("sluice-note") || "No cache has an object for this URL.")) : all.map(({ cache, object }, i) => objectCard(cache, object, i, open)));
  if (focus) [...box.querySelectorAll("button, summary")].find((one) => one.textContent === focus)?.focus({ preventScroll: true });
}

/** Describes the state of a fetch. */
function fetched(state) {
  const what = { complete: "Complete", failed: "Failed", running: "Still running" }[state.state] || state.state || "Done";
  const parts = [state.status ? `status ${state.status}` : "", state.bytes ? format.bytes(state.bytes) : "", state.cache_status || "", state.reason || "", state.took_ms ? format.millis(state.took_ms) : ""];
  return `${what}: ${parts.filter(Boolean).join(", ") || "no details"}`;
}

/** Returns the buttons for orders about the URL. `again` shows the X-ray anew after an order. */
function orders(again) {
  const url = param("url");
  const fetchNow = async (params) => {
    const text = await post("fetch", { url, headers: param("headers") || undefined, ...params });
    toast(fetched(JSON.parse(text)));
    again();
  };
  const purge = async (more, done) => {
    await post("purge", {}, { url, ...more });
    toast(done);
    again();
  };
  return h("div.buttons", { role: "group", "aria-label": "Orders about this URL" },
    order("Fetch now", "", () => fetchNow({})),
    order("Refresh", "", () => fetchNow({ refresh: 1 })),
    order("Mark stale", "", async () => {
      if (await ask("Mark this URL stale?", `${url} is revalidated at its next request.`, "Mark stale")) await purge({ soft: true }, "The URL is stale.");
    }),
    order("Purge", "danger", async () => {
      if (await ask("Purge this URL?", `All variants of ${url} are removed from all caches.`, "Purge")) await purge({}, "The URL was purged.");
    }));
}

const TITLES = { open: "open", awaiting: "awaiting the response", refused: "may not be stored", failed: "fetch failed", revalidated: "revalidated", retired: "retired", unknown: "unknown" };

function freshness(object) {
  if (object.state !== "open") return null;
  const fresh = object.fresh_for_s;
  return fresh >= 0 ? h("span", badge("fresh", "good"), ` for ${format.span(fresh)}`) : h("span", badge("stale", "warn"), ` for ${format.span(-fresh)}`);
}

/** Returns the name of a field for people. */
const named = (name) => name.replace(/_s$/, "").replaceAll("_", " ");

/** Returns the rule that set the lifetime as text. */
function rule(object) {
  const its = object.freshness;
  if (!its) return null;
  const also = [["while revalidating", its.stale_while_revalidate_s], ["after errors", its.stale_if_error_s]].filter(([, time]) => time > 0);
  return h("span", h("code", its.rule), ` ${its.detail || ""}, lifetime ${format.span(its.lifetime_s)}`, also.map(([when, time]) => `, stale ${when} for ${format.span(time)}`));
}

function objectCard(cache, object, index, open) {
  const title = object.vary?.length > 0 ? `Variant by ${object.vary.join(", ")}` : "The only variant";
  const name = (part) => `${index}-${part}`;
  const details = (part, label, ...children) => h("details", { "data-name": name(part), open: open.has(name(part)) || (open.size === 0 && part !== "head") }, h("summary", label), children);
  return h("section.card", { "aria-label": `Object ${index + 1}: ${title}, in cache ${cache}` },
    h("div.head", h("h3", title), h("span", object.selected ? badge("selected by these headers", "good") : null, " ", badge(TITLES[object.state] || object.state, object.state === "open" ? "good" : "warn"), " ", badge(`cache ${cache}`, "off"))),
    h("h4.part", "Bytes"), byteMap(object), h("div.gap"),
    facts([
      ["Status", object.status || null], ["Freshness", freshness(object)], ["Set by", rule(object), "double"], ["Age", object.age_s == null ? null : format.span(object.age_s)],
      ["Length", object.length == null ? "not known yet" : format.bytesExact(object.length)],
      ["Why", object.why ? h("span", h("code", object.why), ` ${meaning(object.why)}`) : null, "double"], ["ETag", object.etag ? h("code", object.etag) : null], ["Last-Modified", object.last_modified],
      ["Variant", object.variant ? h("code", object.variant) : null, "double"], ["Key", object.key ? h("code", object.key) : null, "double"], ["Generation", object.generation ? h("code", object.generation) : null],
      ["Bytes of several responses", object.joinable == null ? null : object.joinable ? "can be combined" : `can't be combined: ${object.why_not_joinable}`],
    ]),
    object.headers?.length > 0 ? details("head", "Stored head", h("div.head-lines.mono", object.headers.map(([name, value]) => h("div", `${name}: ${value}`)))) : null,
    object.flights?.length > 0 ? details("flights", `Fetches in progress: ${object.flights.length}`, flights(object, index)) : null,
    object.decisions?.length > 0 ? details("decisions", "Last decisions", decisions(object, index)) : null);
}

const span = (one) => `${format.exact(one.first)}–${one.last == null ? "end" : format.exact(one.last)}`;

function flights(object, index) {
  return plainTable(`Fetches of object ${index + 1}`, ["Range", "Received", "Rate", "Time left", "Age", "Last byte"], object.flights.map((one) => {
    const last = one.last ?? (object.length ? object.length - 1 : null);
    const left = last === null ? null : last + 1 - one.next;
    const time = one.left_ms != null ? one.left_ms / 1000 : left !== null && one.rate > 0 ? left / one.rate : null;
    return [span({ first: one.first, last }), `${format.bytes(one.next - one.first)}${last === null ? "" : ` of ${format.bytes(last + 1 - one.first)}`}`, one.rate ? format.bytesRate(one.rate) : one.head ? "beginning" : "awaiting the head",
      time === null ? "–" : format.seconds(time), format.millis(one.age_ms), `${format.millis(one.idle_ms)} ago`];
  }), [1, 2, 3, 4, 5]);
}

function decisions(object, index) {
  return plainTable(`Decisions about object ${index + 1}, the newest first`, ["Time", "Decision", "Reason", "Wanted bytes", "Ranges"], [...object.decisions].reverse().map((one) => [
    `${format.clock(one.unix_ms / 1000)} (${format.millis(one.ago_ms)} ago)`, badge(one.what, one.what === "fetch" ? "warn" : "off"), h("span.name-cell", h("code", one.why), meaning(one.why, true) ? ` ${meaning(one.why, true)}` : ""),
    one.want ? span(one.want) : "", (one.ranges || []).map(span).join(", ") || "–"]));
}

async function explain(box, context, isNewest) {
  const thing = "tester";
  try {
    const said = await get("explain", { url: param("url"), method: param("method", "GET"), headers: param("headers") || undefined, client: param("client") || undefined }, context.signal);
    if (isNewest()) put(box, h("h2", "What would Sluice do with this request?"), explained(said));
  } catch (error) {
    if (isNewest()) put(box, h("h2", "What would Sluice do with this request?"), h("div.card", trouble(error, thing)));
  }
}

/** Takes the name of a field from the beginning of its text, since the name is shown before it. */
const once = (name, value) => (typeof value === "string" && value.startsWith(`${name} `) ? value.slice(name.length + 1) : value);

/** Writes any value of the answer as text. */
function plain(value) {
  if (value == null || value === "") return null;
  if (Array.isArray(value)) return value.length === 0 ? null : h("ul.plain", value.map((one) => h("li", plain(one))));
  if (typeof value === "object") {
    const parts = Object.entries(value).filter(([, one]) => plain(one) !== null);
    return parts.length === 0 ? null : h("span", parts.map(([name, one]) => h("span.reason", h("span.note", `${named(name)} `), name.endsWith("_s") && typeof one === "number" ? format.span(one) : once(name, plain(one)))));
  }
  return typeof value === "boolean" ? (value ? "yes" : "no") : String(value);
}

/** Returns a stored object in one line. The cards below have all of it. */
function storedShort(object) {
  return h("span", object.status ? `status ${object.status}, ` : "", freshness(object) || badge(TITLES[object.state] || object.state || "stored"), object.age_s == null ? "" : `, age ${format.span(object.age_s)}`);
}

/** Returns a response that Sluice makes itself. */
function answered(answer) {
  return h("div", h("strong", `status ${answer.status}`), (answer.headers || []).map(([name, value]) => h("div.mono", `${name}: ${value}`)));
}

/** Returns the text of a condition, or what it means to have none. */
const condition = (none, text, meant) => (text === none ? meant : h("code", text));

function explained(said) {
  const gates = (said.gates || []).map((one) => h("li", badge(one.passes === true ? "passes" : one.passes === false ? "refuses" : "not checked", one.passes === true ? "good" : one.passes === false ? "bad" : "off"), h("strong", one.gate), h("span", one.detail ? [one.detail, meaning(one.detail) ? `: ${meaning(one.detail)}` : ""] : "")));
  const step = (title, value) => (value == null ? null : h("li", h("span.step", title), h("div", value)));
  const cacheKey = said.key ? h("span", h("span.mono", said.key.primary), h("span.note", ` hash ${said.key.hash || "–"}${said.key.vary?.length > 0 ? `, varies on ${said.key.vary.join(", ")}` : ""}${said.key.variant ? `, variant ${said.key.variant}` : ""}`)) : null;
  return h("div.card", h("ol.steps",
    step("Site", said.site ? condition("*", said.site, "all hosts") : "none"),
    step("Route", said.route ? h("span", condition("everything", said.route, "all paths"), said.handler ? ` → ${said.handler}` : "") : h("span.bad-text", "no route matches")),
    step("Gates", gates.length > 0 ? h("ul.gates", gates) : "none"),
    step("Edits", plain(said.edits)),
    step("Rewritten to", said.rewritten ? h("code", said.rewritten) : null),
    step("Cache", said.cache ? h("code", said.cache) : "none"),
    step("Key", cacheKey),
    step("Stored", said.stored ? storedShort(said.stored) : said.cache ? "nothing" : null),
    step("Decision", said.decision ? h("span", badge(said.decision), said.reason ? h("span", " ", h("code", said.reason), ` ${meaning(said.reason)}`) : "") : null),
    step("Cache-Status", said.cache_status ? h("code", said.cache_status) : null),
    step("Policy", plain(said.policy)),
    step("Upstream", plain(said.upstream)),
    step("Servers", plain(said.servers)),
    step("Advice", said.advice ? h("span.bad-text", said.advice) : null),
    step("Answer", said.answer ? (typeof said.answer === "object" ? answered(said.answer) : h("strong", said.answer)) : null)));
}
