// Parts of which the views consist: tiles, meters, badges, buttons, questions and notes.

import { h, put, say, svg, text, uid } from "./dom.js";
import { share } from "./format.js";

/** A section with a heading. */
export function section(title, ...children) {
  const id = uid("section");
  return h("section.block", { "aria-labelledby": id }, h("h2", { id }, title), children);
}

/** A card with a heading. */
export function card(title, ...children) {
  const id = uid("card");
  return h("section.card", { "aria-labelledby": id }, h("h3", { id }, title), children);
}

/** A note in place of something that there is not. */
export const note = (...children) => h("p.note", children);
export const missing = (thing) => h("p.empty", `Not available: this Sluice has no ${thing}.`);
export const failed = (error) => h("p.empty", { role: "alert" }, `Not available: ${error.message}`);

/** Returns the note for an error of a request. */
export const trouble = (error, thing) => (error.missing ? missing(thing) : failed(error));

const TONES = {
  up: "good", drain: "warn", down: "off", checking: "warn", unhealthy: "bad", ejected: "bad", unreachable: "bad", resolving: "warn", unresolved: "bad",
  loading: "warn", out: "bad", hit: "good", miss: "warn", pass: "off", stale: "warn", open: "good", awaiting: "warn", refused: "off", failed: "bad",
};

/** A word with a color, such as the state of a server. */
export function badge(word, tone) {
  return h("span", { class: `badge ${tone || TONES[word] || "off"}` }, word);
}

/** A number with a name, a small chart of its history, and its change. */
export class Tile {
  constructor({ label, help, tone = "hit" }) {
    this.value = h("span.tile-value", "–");
    this.delta = h("span.tile-delta");
    this.sub = h("span.tile-sub");
    this.path = svg("path", { class: `spark s-${tone}`, fill: "none" });
    this.area = svg("path", { class: `spark-area a-${tone}` });
    const picture = svg("svg", { viewBox: "0 0 100 28", preserveAspectRatio: "none", "aria-hidden": "true", focusable: "false" }, this.area, this.path);
    this.root = h("div.card.tile", { role: "group", "aria-label": label },
      h("span.tile-label", { title: help || null }, label), h("span.tile-line", this.value, this.delta), this.sub, picture);
  }

  /** `better` is 1 if more is better, -1 if less is better. */
  set(value, { sub = "", delta = "", better = 0, sign = 0, column = null } = {}) {
    text(this.value, value);
    text(this.sub, sub);
    text(this.delta, delta);
    const tone = better === 0 || sign === 0 || delta.startsWith("±") ? "" : sign * better > 0 ? "good" : "bad";
    this.delta.setAttribute("class", `tile-delta ${tone}`);
    this.#spark(column);
  }

  #spark(column) {
    const values = (column || []).filter((value) => value != null);
    if (values.length < 2) {
      this.path.setAttribute("d", "");
      this.area.setAttribute("d", "");
      return;
    }
    const low = Math.min(...values);
    const high = Math.max(...values);
    const y = (value) => (high > low ? 25 - ((value - low) / (high - low)) * 22 : 14).toFixed(1);
    const every = Math.max(1, Math.floor(values.length / 100));
    const used = values.filter((_, i) => i % every === 0);
    const line = used.map((value, i) => `${i === 0 ? "M" : "L"}${((i / (used.length - 1)) * 100).toFixed(1)} ${y(value)}`).join("");
    this.path.setAttribute("d", line);
    this.area.setAttribute("d", `${line}L100 28L0 28Z`);
  }
}

/** The filled part of a bar. */
export function filled(name, ratio) {
  const bar = h("span", { class: name });
  bar.style.setProperty("width", `${(Math.max(0, Math.min(1, ratio || 0)) * 100).toFixed(1)}%`);
  return bar;
}

/** A bar that shows a part of a whole. */
export function meter(label, part, whole, textOf, tone) {
  const ratio = whole > 0 ? Math.max(0, Math.min(1, part / whole)) : 0;
  const bar = filled(`meter-fill ${tone || (ratio > 0.98 ? "full" : "")}`, ratio);
  const shown = `${textOf(part)} of ${textOf(whole)}`;
  return h("div.meter-row",
    h("span.meter-text", h("span", label), h("span.number", `${shown} (${share(ratio)})`)),
    h("span.meter", { role: "meter", "aria-label": label, "aria-valuemin": "0", "aria-valuemax": "100", "aria-valuenow": (ratio * 100).toFixed(1), "aria-valuetext": shown }, bar));
}

/** The meaning of a color. */
export const legend = (tone, ...label) => h("li", h("span", { class: `swatch c-${tone}`, "aria-hidden": "true" }), h("span.name", label[0]), label.slice(1));

/** A thin bar inside a cell of a table. */
export function cellBar(ratio, tone) {
  return h("span.cell-bar", { "aria-hidden": "true" }, filled(`cell-fill c-${tone}`, ratio));
}

/** A list of names and values. */
export function facts(pairs) {
  const there = pairs.filter(([, value]) => value != null && value !== "");
  return h("dl.facts", there.map(([name, value, size]) => h("div", { class: size || null }, h("dt", name), h("dd", value))));
}

/** Buttons of which one is chosen. */
export function choice(label, options, chosen, choose) {
  const group = h("div.choice", { role: "group", "aria-label": label });
  for (const [value, name, full] of options) {
    group.append(h("button", { type: "button", "aria-pressed": String(value === chosen), title: full || null, onclick: () => choose(value) }, name));
  }
  return group;
}

/** A field for a text that filters a list. */
export const search = (label, placeholder, value, change) => h("input.filter", { type: "search", "aria-label": label, placeholder, value, spellcheck: "false", oninput: (event) => change(event.target.value) });

/** Marks the chosen button of a group. */
export function choose(group, options, chosen) {
  [...group.children].forEach((button, i) => button.setAttribute("aria-pressed", String(options[i][0] === chosen)));
}

/** A list to choose from. */
export function select(label, options, chosen, pick) {
  const list = h("select", { "aria-label": label, onchange: () => pick(list.value) },
    options.map(([value, name]) => h("option", { value, selected: value === chosen }, name)));
  return list;
}

/** Asks a question in a dialog. Resolves to whether the answer is yes. */
export function ask(title, detail, yes, tone = "danger") {
  return new Promise((resolve) => {
    const id = uid("dialog");
    const dialog = h("dialog", { "aria-labelledby": id },
      h("form", { method: "dialog" }, h("h2", { id }, title), h("p", detail),
        h("div.buttons",
          h("button", { value: "no", class: "quiet" }, "Cancel"),
          h("button", { value: "yes", class: tone }, yes))));
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "yes");
      dialog.remove();
    });
    document.body.append(dialog);
    dialog.showModal();
  });
}

let toastTimer = 0;

/** Shows the result of an order for some seconds. */
export function toast(message, tone = "good") {
  let node = document.getElementById("toast");
  if (!node) {
    node = h("p", { id: "toast" });
    document.body.append(node);
  }
  node.className = `toast ${tone}`;
  text(node, message);
  say(message);
  clearTimeout(toastTimer);
  toastTimer = setTimeout(() => node.remove(), 6000);
}

/** A button that gives an order. While the order is carried out, a click has no effect, and the button keeps the focus. */
export function order(label, tone, run) {
  const button = h("button", { type: "button", class: tone, onclick: async () => {
    if (button.getAttribute("aria-disabled")) return;
    button.setAttribute("aria-disabled", "true");
    try {
      await run();
    } catch (error) {
      toast(error.message, "bad");
    }
    button.removeAttribute("aria-disabled");
    if (document.activeElement === document.body) successor(button)?.focus({ preventScroll: true });
  } }, label);
  return button;
}

/** Returns a button, or the one that took its place when its view was built again. */
function successor(button) {
  const name = (one) => one.getAttribute("aria-label") || one.textContent;
  return button.isConnected ? button : [...document.querySelectorAll("main button")].find((one) => name(one) === name(button));
}

/** Replaces children only if their text differs, so that a selection or the focus is not lost without need. */
export function refresh(node, key, build) {
  if (node.dataset.key === key) return;
  node.dataset.key = key;
  put(node, build());
}
