// The legend of a chart: a button for each series, which hides it, with the value under the pointer.

import { h, text } from "./dom.js";
import { toggleHidden } from "./state.js";

export class Legend {
  #entries = new Map();

  constructor(chart, series, write) {
    this.write = write;
    this.root = h("ul", { class: "legend" });
    for (const { key, label, color, help } of series) {
      const value = h("span", { class: "value" });
      const before = h("span", { class: "before" });
      const button = h("button", {
        type: "button", "aria-pressed": "true", title: help || `Hide or show ${label}`, onclick: () => toggleHidden(chart, key),
      }, h("span", { class: `swatch c-${color}`, "aria-hidden": "true" }), h("span", { class: "name" }, label), value, before);
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
    text(entry.before, before === undefined || before === null ? "" : `was ${this.write(before)}`);
  }
}
