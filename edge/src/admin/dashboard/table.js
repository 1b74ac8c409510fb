// A table of many rows, of which only those in view are elements. It can be sorted and filtered.

import { h, put, say } from "./dom.js";

const ROW_HEIGHT = 36;
/** On a phone, the name of a row is above its numbers. */
const STACKED_HEIGHT = 62;
const phone = matchMedia("(max-width: 700px)");
const EXTRA_ROWS = 12;
/** Up to this number, all rows are elements, and their text may wrap. */
const WHOLE_MAX = 250;

/** Returns a column of numbers: `of(row)` is its value, which `write` shows. */
export const numbers = (key, label, of, write, more) => ({ key, label, number: true, sort: of, cell: (row) => write(of(row), row), ...more });

const classes = (column) => `${column.number ? "number " : ""}${column.class || ""}`;

export class Table {
  #rows = [];
  #shown = [];
  #from = -1;
  #to = -1;
  #frame = 0;
  #rowHeight = 0;

  /**
   * `columns`: `{ key, label, cell(row), sort(row), number, class, help }`. `key(row)` identifies a row. `sort` and `descending` are
   * the order at the beginning, `onSort` is told of another one.
   */
  constructor({ label, columns, key, sort, descending = true, onSort, height = 560, empty = "Nothing to show." }) {
    Object.assign(this, { columns, key, sort, descending, onSort, empty, label });
    this.head = h("tr", { "aria-rowindex": "1" });
    this.body = h("tbody");
    this.table = h("table.rows.stacked", { "aria-label": label }, h("thead", this.head), this.body);
    this.root = h("div.scroll", { tabindex: "0", role: "region", "aria-label": `${label}, can be scrolled` }, this.table);
    this.root.style.setProperty("max-height", `${height}px`);
    this.root.addEventListener("scroll", () => this.#soon(), { passive: true });
    this.#heads();
  }

  #heads() {
    put(this.head, this.columns.map((column) => {
      const isSorted = column.key === this.sort;
      const order = isSorted ? (this.descending ? "descending" : "ascending") : "none";
      if (!column.sort) return h("th", { scope: "col", class: classes(column) }, column.label);
      return h("th", { scope: "col", class: classes(column), "aria-sort": order },
        h("button", { type: "button", class: "sort", title: column.help || null, onclick: () => this.#sortBy(column) }, column.label,
          h("span.arrow", { "aria-hidden": "true" }, isSorted ? (this.descending ? "▾" : "▴") : "")));
    }));
  }

  #sortBy(column) {
    this.descending = this.sort === column.key ? !this.descending : Boolean(column.number);
    this.sort = column.key;
    const index = this.columns.indexOf(column);
    this.#heads();
    this.head.children[index].querySelector("button").focus();
    this.root.scrollTop = 0;
    this.#arrange();
    this.onSort?.(this.sort, this.descending);
    say(`Sorted by ${column.label}, ${this.descending ? "descending" : "ascending"}`);
  }

  /** Shows these rows, those for which `filter` is true. */
  set(rows, filter = null) {
    this.#rows = filter ? rows.filter(filter) : rows;
    this.#arrange();
  }

  get length() {
    return this.#rows.length;
  }

  #arrange() {
    const column = this.columns.find((one) => one.key === this.sort);
    this.#shown = [...this.#rows];
    if (column?.sort) {
      const sign = this.descending ? -1 : 1;
      this.#shown.sort((a, b) => {
        const [x, y] = [column.sort(a), column.sort(b)];
        if (x == null) return 1;
        if (y == null) return -1;
        return sign * (typeof x === "string" ? x.localeCompare(y, "en", { numeric: true }) : x - y);
      });
    }
    this.table.setAttribute("aria-rowcount", String(this.#shown.length + 1));
    this.#from = -1;
    this.#draw();
  }

  #soon() {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      this.#draw();
    });
  }

  #draw() {
    const height = this.root.clientHeight || 560;
    const { length } = this.#shown;
    const isWhole = length <= WHOLE_MAX;
    this.table.classList.toggle("whole", isWhole);
    const rowHeight = phone.matches ? STACKED_HEIGHT : ROW_HEIGHT;
    const first = isWhole ? 0 : Math.max(0, Math.floor(this.root.scrollTop / rowHeight) - EXTRA_ROWS);
    const from = first - (first % 2);
    const to = isWhole ? length : Math.min(length, from + Math.ceil(height / rowHeight) + 2 * EXTRA_ROWS);
    if (from === this.#from && to === this.#to && rowHeight === this.#rowHeight) return;
    const focused = this.body.contains(document.activeElement) ? document.activeElement.closest("tr")?.dataset.key : null;
    [this.#from, this.#to, this.#rowHeight] = [from, to, rowHeight];
    const rows = this.#shown.slice(from, to).map((row, i) => this.#row(row, from + i));
    if (this.#shown.length === 0) {
      put(this.body, h("tr", h("td", { colspan: String(this.columns.length), class: "empty" }, this.empty)));
      return;
    }
    put(this.body, this.#space(from), rows, this.#space(this.#shown.length - to));
    if (focused) {
      const again = [...this.body.children].find((row) => row.dataset.key === focused);
      again?.querySelector("a, button")?.focus({ preventScroll: true });
    }
  }

  #row(row, index) {
    return h("tr", { "aria-rowindex": String(index + 2), "data-key": this.key(row) }, this.columns.map((column, i) => {
      return i === 0 ? h("th", { scope: "row", class: classes(column) }, column.cell(row)) : h("td", { class: classes(column) }, column.cell(row));
    }));
  }

  #space(rows) {
    if (rows <= 0) return null;
    const cell = h("td", { colspan: String(this.columns.length) });
    cell.style.setProperty("height", `${rows * this.#rowHeight}px`);
    return h("tr.space", { "aria-hidden": "true" }, cell);
  }
}

const headText = (head) => (Array.isArray(head) ? head[0] : head);

/** Shows a small table in a box. Further calls replace its rows only, so that the region keeps the focus and its place. */
export function showTable(box, label, heads, rows, numbers) {
  const fresh = plainTable(label, heads, rows, numbers);
  const key = [label, ...heads].join("\n");
  const old = box.dataset.table === key ? box.querySelector("tbody") : null;
  box.dataset.table = key;
  old ? old.replaceWith(fresh.querySelector("tbody")) : put(box, fresh);
}

/**
 * A small table that is built at once. `rows` are arrays of cells; the first is the row's heading. A head may be an array of
 * text and help. With the kind "stacked labelled", a phone shows the cells of a row below each other, with their heads.
 */
export function plainTable(label, heads, rows, numbers = [], kind = "") {
  const isNumber = new Set(numbers);
  return h("div.scroll", { tabindex: "0", role: "region", "aria-label": label },
    h("table", { class: `rows whole ${kind}` },
      h("thead", h("tr", heads.map((head, i) => h("th", { scope: "col", class: isNumber.has(i) ? "number" : "", title: Array.isArray(head) ? head[1] : null }, headText(head))))),
      h("tbody", rows.map((row) => h("tr", row.map((cell, i) => (i === 0
        ? h("th", { scope: "row" }, cell)
        : h("td", { class: isNumber.has(i) ? "number" : "", "data-label": kind ? headText(heads[i]) : null }, cell))))))));
}
