// Requests to the admin API, with the token of the login if there is one, and its streams of events.

const KEY = "sluice-token";
const BACKOFF_MIN_MS = 500;
const BACKOFF_MAX_MS = 20000;
/** A stream without a byte for this long is opened again. */
const SILENCE_MAX_MS = 15000;
/** A stream that lived this long ended in the ordinary way: connections have a longest life. */
const LIVED_MS = 5000;
const NOT_VALID = "This token is not valid.";

let token = read();
let askForToken = async () => false;
/** The question for a token, or the first use of the one of this tab. Other requests wait for its end. */
let asking = token ? tryToken(token).then(keepIfValid, () => {}).finally(() => { asking = null; }) : null;
let wasRefused = false;

function read() {
  try {
    return sessionStorage.getItem(KEY) || "";
  } catch {
    return "";
  }
}

/** Keeps a token for this tab. An empty one logs out. */
export function setToken(value) {
  token = value;
  try {
    value ? sessionStorage.setItem(KEY, value) : sessionStorage.removeItem(KEY);
  } catch {
    // Without storage, the token lasts until the page is loaded again.
  }
}

export const hasToken = () => token !== "";

/**
 * Sends one request with a token, since each wrong token takes a try of the client. Returns the text of the refusal, or "" if
 * the token is valid.
 */
export async function tryToken(value) {
  const response = await fetch(address("settings"), { headers: { Authorization: `Bearer ${value}` }, cache: "no-store" });
  if (response.status === 401) return NOT_VALID;
  return response.ok ? "" : (await response.text()).trim().slice(0, 2000) || `status ${response.status}`;
}

/** Forgets the token of this tab if it is not valid any more. */
function keepIfValid(refusal) {
  wasRefused = refusal === NOT_VALID;
  if (wasRefused) setToken("");
}

/** Sets the function that asks for a token and returns whether there is one. Its argument: whether a token was refused. */
export function onUnauthorized(ask) {
  askForToken = ask;
}

/** A request that failed. `missing` means that this Sluice does not have the page. */
export class ApiError extends Error {
  constructor(status, text) {
    super(text || `status ${status}`);
    this.status = status;
    this.missing = status === 404 || status === 405 || status === 501;
  }
}

const headers = (more) => (token ? { ...more, Authorization: `Bearer ${token}` } : more);

function address(path, params) {
  const query = new URLSearchParams();
  for (const [key, value] of Object.entries(params || {})) {
    if (value != null) query.set(key, value);
  }
  const text = query.toString().replaceAll("%2C", ",").replaceAll("*", "%2A");
  // The page is at /dashboard/, and the pages of the API are beside it.
  return text ? `../${path}?${text}` : `../${path}`;
}

async function authorized(send) {
  for (;;) {
    await asking;
    const used = token;
    const response = await send();
    if (response.status !== 401) return response;
    if (token !== used) continue;
    wasRefused ||= used !== "";
    asking ||= askForToken(wasRefused).finally(() => { asking = null; });
    if (!(await asking)) throw new ApiError(401, "a token is needed");
    wasRefused = false;
  }
}

async function refused(response) {
  const body = (await response.text()).trim();
  return new ApiError(response.status, body.slice(0, 2000));
}

/** Returns the JSON of a page. */
export async function get(path, params, signal) {
  return (await getWithHeaders(path, params, signal)).data;
}

/** Returns the JSON and the headers of a page. */
export async function getWithHeaders(path, params, signal) {
  const url = address(path, params);
  const response = await authorized(() => fetch(url, { headers: headers({ Accept: "application/json" }), signal, cache: "no-store" }));
  if (!response.ok) throw await refused(response);
  return { data: await response.json(), headers: response.headers };
}

/** Gives an order, and returns the text of the answer. */
export async function post(path, params, body) {
  const more = body === undefined ? {} : { "Content-Type": "application/json" };
  const response = await authorized(() => fetch(address(path, params), {
    method: "POST",
    headers: headers({ ...more, "x-sluice": "1" }),
    body: body === undefined ? undefined : JSON.stringify(body),
  }));
  if (!response.ok) throw await refused(response);
  return response.text();
}

/** Waits for some time, or until `signal` aborts. */
export function wait(ms, signal) {
  return new Promise((resolve) => {
    const end = () => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });
}

/** Returns pauses between tries, which become longer. */
export function backoff() {
  let pause = BACKOFF_MIN_MS;
  return {
    next() {
      const now = pause * (0.75 + Math.random() / 2);
      pause = Math.min(pause * 2, BACKOFF_MAX_MS);
      return now;
    },
    reset() { pause = BACKOFF_MIN_MS; },
  };
}

/** Splits the text of a stream into events. */
export class EventReader {
  #rest = "";
  #event = { type: "message", data: [], id: "" };

  /** Calls `emit` for each event that is complete. */
  push(chunk, emit) {
    this.#rest += chunk;
    let at = 0;
    for (let end = this.#rest.indexOf("\n"); end >= 0; end = this.#rest.indexOf("\n", at)) {
      this.#line(this.#rest.slice(at, end).replace(/\r$/, ""), emit);
      at = end + 1;
    }
    this.#rest = this.#rest.slice(at);
    if (this.#rest.length > 1 << 20) this.#rest = "";
  }

  #line(line, emit) {
    if (line === "") {
      if (this.#event.data.length > 0) emit({ ...this.#event, data: this.#event.data.join("\n") });
      this.#event = { type: "message", data: [], id: "" };
      return;
    }
    const at = line.indexOf(":");
    const name = at < 0 ? line : line.slice(0, at);
    const value = at < 0 ? "" : line.slice(at + 1).replace(/^ /, "");
    if (name === "event") this.#event.type = value;
    else if (name === "data") this.#event.data.push(value);
    else if (name === "id") this.#event.id = value;
  }
}

async function readStream(url, lastId, signal, emit) {
  const init = lastId ? { "Last-Event-ID": lastId } : {};
  const response = await authorized(() => fetch(url, {
    headers: headers({ ...init, Accept: "text/event-stream" }),
    signal,
    cache: "no-store",
  }));
  if (!response.ok) throw await refused(response);
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const events = new EventReader();
  for (;;) {
    let timer;
    const silence = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error("silent")), SILENCE_MAX_MS); });
    try {
      const { done, value } = await Promise.race([reader.read(), silence]);
      if (done) return;
      events.push(decoder.decode(value, { stream: true }), emit);
    } catch (error) {
      reader.cancel().catch(() => {});
      throw error;
    } finally {
      clearTimeout(timer);
    }
  }
}

/**
 * Reads a stream until `signal` aborts, and opens it again when it ends. `emit` gets the events, `report` gets `live`,
 * `ended`, `lost`, `missing` or, while there are too many streams, `busy`.
 */
export async function stream(path, params, signal, emit, report) {
  const pauses = backoff();
  let lastId = "";
  while (!signal.aborted) {
    const began = performance.now();
    let end = "lost";
    try {
      await readStream(address(path, params), lastId, signal, (event) => {
        if (event.id) lastId = event.id;
        report("live");
        emit(event);
      });
    } catch (error) {
      if (error.missing) end = "missing";
      else if (error.status === 503) end = "busy";
    }
    if (signal.aborted) return;
    if (end === "lost" && performance.now() - began > LIVED_MS) {
      pauses.reset();
      end = "ended";
    }
    report(end);
    await wait(pauses.next(), signal);
  }
}
