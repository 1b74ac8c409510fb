// The recent errors and events, of which each request loads only the new ones.

import { get } from "./api.js";

const KEPT = 1000;

export class Recent {
  list = [];
  error = null;
  #last;
  #signal;
  #starts = 0;

  constructor(signal) {
    this.#signal = signal;
  }

  /** Loads what is new, and returns whether there is something. */
  async load() {
    let data;
    try {
      data = await this.#after(this.#last);
      if (data.last < this.#last) {
        this.#keepOld();
        data = await this.#after(0);
      }
      this.error = null;
    } catch (error) {
      this.error = error;
      return false;
    }
    const changed = data.events || [];
    this.#last = data.last ?? changed[changed.length - 1]?.id ?? this.#last;
    const ids = new Set(changed.map((one) => one.id));
    this.list = [...this.list.filter((one) => !ids.has(one.id)), ...changed].sort((a, b) => a.time - b.time).slice(-KEPT);
    return changed.length > 0;
  }

  #after(last) {
    return get("events", { after: last, n: 500 }, this.#signal);
  }

  /** Gives other ids to the events of a process that has ended, since those of the next one begin at 1 again. */
  #keepOld() {
    this.#starts += 1;
    this.list = this.list.map((one) => ({ ...one, id: `${this.#starts} ${one.id}` }));
  }
}
