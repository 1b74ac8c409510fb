// Writes numbers for people.

const DASH = "–";
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

function digits(value) {
  const size = Math.abs(value);
  if (size >= 100 || size === 0) return value.toFixed(0);
  if (size >= 10) return value.toFixed(1);
  return value.toFixed(2);
}

function trimmed(text) {
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

function scaled(value, step, units) {
  let at = 0;
  let rest = value;
  while (Math.abs(rest) >= step * 0.9995 && at < units.length - 1) {
    rest /= step;
    at += 1;
  }
  return [trimmed(digits(rest)), units[at]];
}

/** `1234567` becomes `1.23 M`. */
export function count(value) {
  if (!isNumber(value)) return DASH;
  if (value !== 0 && Math.abs(value) < 0.01) return value > 0 ? "<0.01" : ">-0.01";
  const [number, unit] = scaled(value, 1000, ["", "k", "M", "G", "T"]);
  return unit ? `${number} ${unit}` : number;
}

/** Exact number with separators. */
export function exact(value) {
  return isNumber(value) ? Math.round(value).toLocaleString("en-US") : DASH;
}

/** Bytes in powers of 1024. */
export function bytes(value) {
  if (!isNumber(value)) return DASH;
  const [number, unit] = scaled(value, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]);
  return `${number} ${unit}`;
}

/** Bytes, with the exact number if it differs. */
export const bytesExact = (value) => (value >= 1024 ? `${bytes(value)} (${exact(value)})` : bytes(value));

export const bytesRate = (value) => (isNumber(value) ? `${bytes(value)}/s` : DASH);
export const rate = (value) => (isNumber(value) ? `${count(value)}/s` : DASH);

/** A share from 0 to 1 as percentage. */
export function share(value) {
  if (!isNumber(value)) return DASH;
  const percent = value * 100;
  if (percent > 0 && percent < 0.01) return "<0.01 %";
  const shown = percent >= 99.95 && percent < 100 ? 2 : percent < 1 && percent > 0 ? 2 : 1;
  return `${trimmed(percent.toFixed(shown)).replace(/^-0$/, "0")} %`;
}

/** A difference of shares in percentage points. */
export function points(value) {
  if (!isNumber(value)) return DASH;
  const number = value * 100;
  return `${number > 0 ? "+" : number < 0 ? "−" : "±"}${trimmed(Math.abs(number).toFixed(Math.abs(number) < 1 ? 2 : 1))}`;
}

/** A duration in seconds: `850 µs`, `12.3 ms`, `4.5 s`, `3 h 20 min`. */
export function seconds(value) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${trimmed(digits(value * 1e6))} µs`;
  if (size < 1) return `${trimmed(digits(value * 1e3))} ms`;
  if (size < 120) return `${trimmed(digits(value))} s`;
  return span(value);
}

/** A long duration in whole units. */
export function span(value) {
  if (!isNumber(value)) return DASH;
  const all = Math.round(Math.abs(value));
  const units = [["d", 86400], ["h", 3600], ["min", 60], ["s", 1]];
  const first = units.findIndex(([, size]) => all >= size);
  if (first < 0) return "0 s";
  const [unit, size] = units[first];
  const whole = Math.floor(all / size);
  const next = units[first + 1];
  const rest = next ? Math.floor((all % size) / next[1]) : 0;
  return rest > 0 && whole < 10 ? `${whole} ${unit} ${rest} ${next[0]}` : `${whole} ${unit}`;
}

export const millis = (value) => (isNumber(value) ? seconds(value / 1000) : DASH);
export const micros = (value) => (isNumber(value) ? seconds(value / 1e6) : DASH);

/** Money, with the currency before the number if it is a sign. */
export function money(value, currency) {
  if (!isNumber(value)) return DASH;
  const size = Math.abs(value);
  const number = size >= 1000 ? count(size) : size.toFixed(size !== 0 && size < 1 ? 3 : 2);
  const sign = value < 0 && Number(number) !== 0 ? "-" : "";
  return /^[A-Za-z]{2,}$/.test(currency) ? `${sign}${number} ${currency}` : `${sign}${currency}${number}`;
}

/** The name of a route or site, in which `*` stands for all hosts, and as a condition for all paths. */
export const routeName = (member) => member.replace(/^(\S+) \*(?=( #\d+)?$)/, "$1, all paths").replace(/^\*(?=[ ,]|$)/, "all hosts");

/** Relative change as `+12 %`. */
export function change(now, before) {
  if (!isNumber(now) || !isNumber(before) || before === 0) return "";
  const part = (now - before) / Math.abs(before);
  if (Math.abs(part) < 0.0005) return "±0 %";
  if (part > 9.99) return `×${trimmed(digits(now / before))}`;
  const percent = Math.abs(part * 100);
  return `${part > 0 ? "+" : "−"}${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

const two = (value) => String(value).padStart(2, "0");

/** Time of day of a Unix time in seconds. */
export function clock(unix, withSeconds = true) {
  const at = new Date(unix * 1000);
  const text = `${two(at.getHours())}:${two(at.getMinutes())}`;
  return withSeconds ? `${text}:${two(at.getSeconds())}` : text;
}

/** Date and time of a Unix time in seconds. The date is left out if it is today. */
export function moment(unix, withSeconds = true) {
  if (!isNumber(unix)) return DASH;
  const at = new Date(unix * 1000);
  const today = new Date();
  if (at.toDateString() === today.toDateString()) return clock(unix, withSeconds);
  return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ${clock(unix, withSeconds)}`;
}

/** A duration in one unit, which is short enough for an axis. */
function shortSeconds(value) {
  const [unit, size] = [["d", 86400], ["h", 3600], ["min", 60]].find(([, one]) => value >= 2 * one) || [];
  return unit ? `${trimmed(digits(value / size))} ${unit}` : seconds(value);
}

export const axisWriters = { seconds: shortSeconds };

/** Names of units, as the history has them, to functions that write values. */
export const writers = { count, bytes, bytesRate, rate, share, seconds };
