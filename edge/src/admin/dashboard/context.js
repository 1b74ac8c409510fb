// What a view uses while it is shown: feeds, charts and repeated requests, all of which end with the view.

import { Chart } from "./chart.js";
import { Feed } from "./feed.js";

export class Context {
  #abort = new AbortController();
  #feeds = new Set();
  #charts = new Set();
  #timers = new Set();
  #runs = new Set();
  #periods = new Set();
  #params = new Set();

  constructor(shared) {
    this.shared = shared;
    document.addEventListener("visibilitychange", () => this.#seen(!document.hidden), { signal: this.signal });
  }

  /** Ends streams while nobody sees the page: a browser has six connections for all its tabs. */
  #seen(isVisible) {
    for (const feed of this.#feeds) isVisible ? feed.start(this.signal) : feed.stop();
    if (isVisible) this.runAll();
  }

  get signal() {
    return this.#abort.signal;
  }

  get isOperator() {
    return this.shared.settings?.role === "operator";
  }

  /** Starts a feed of series. Only the first one of a view has a stream. */
  feed(options) {
    const hasStream = [...this.#feeds].some((feed) => feed.streamed);
    const feed = new Feed({ ...options, streamed: Boolean(options.streamed) && !hasStream });
    this.#feeds.add(feed);
    feed.start(this.signal);
    return feed;
  }

  chart(options) {
    const chart = new Chart(options);
    this.#charts.add(chart);
    return chart.root;
  }

  /** Ends feeds and charts, for a view that shows another member. */
  drop() {
    for (const feed of this.#feeds) feed.stop();
    for (const chart of this.#charts) chart.destroy();
    this.#feeds.clear();
    this.#charts.clear();
  }

  /**
   * Calls a function now and then repeatedly, while the page is visible, and `onError` with an error that it throws. Without
   * `onError`, the function handles its errors, and a further one is shown in the browser's console.
   */
  every(seconds, run, onError = (error) => { throw error; }) {
    let busy = false;
    const again = async () => {
      if (busy || document.hidden || this.signal.aborted) return;
      busy = true;
      try {
        await run();
      } catch (error) {
        if (!this.signal.aborted) onError(error);
      } finally {
        busy = false;
      }
    };
    again();
    this.#timers.add(setInterval(again, seconds * 1000));
    this.#runs.add(again);
    return again;
  }

  /** Calls all repeated functions now. */
  runAll() {
    for (const run of this.#runs) run();
  }

  /** Calls a function when the period or the comparison changes. */
  onPeriod(run) {
    this.#periods.add(run);
  }

  /** Calls a function when a parameter of the view changes. It returns whether it has handled the change. */
  onParams(run) {
    this.#params.add(run);
  }

  periodChanged() {
    for (const feed of this.#feeds) feed.start(this.signal);
    for (const run of this.#periods) run();
  }

  paramsChanged(names) {
    return [...this.#params].some((run) => run(names));
  }

  end() {
    this.#abort.abort();
    for (const timer of this.#timers) clearInterval(timer);
    this.drop();
  }
}
