// Builds elements. All text becomes text nodes, so that no text of a request is ever markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, parts) {
  const [props] = parts;
  if (props && Object.getPrototypeOf(props) === Object.prototype) setAll(node, parts.shift());
  return append(node, parts);
}

function setAll(node, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value == null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "value" && node.localName === "input") node.value = value;
    else node.setAttribute(name, value === true ? "" : String(value));
  }
}

function append(node, children) {
  for (const child of children) {
    if (child == null || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : String(child));
  }
  return node;
}

/** Creates an element: its tag with its classes (`div.card`), attributes and listeners (`{ onclick }`) if any, and children. */
export function h(name, ...parts) {
  const [tag, ...classes] = name.split(".");
  const node = document.createElement(tag);
  if (classes.length > 0) node.className = classes.join(" ");
  return fill(node, parts);
}

/** Creates an element of SVG. */
export const svg = (tag, ...parts) => fill(document.createElementNS(SVG, tag), parts);

/** Replaces the children of an element. */
export function put(node, ...children) {
  node.textContent = "";
  return append(node, children);
}

/** Sets an element's text if it differs, so that unchanged text is not laid out again. */
export function text(node, value) {
  const wanted = String(value);
  if (node.textContent !== wanted) node.textContent = wanted;
}

let counter = 0;

/** Returns an id that no other element has. */
export function uid(prefix) {
  counter += 1;
  return `${prefix}-${counter}`;
}

/** Says something to users of screen readers, once. */
export function say(message) {
  const node = document.getElementById("says");
  if (node) node.textContent = message;
}

/** Returns a color of the theme. */
const colors = new Map();
export function color(name) {
  let value = colors.get(name);
  if (!value) {
    value = getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim() || "#888";
    colors.set(name, value);
  }
  return value;
}

/** Forgets the colors, after the theme has changed. */
export function forgetColors() {
  colors.clear();
}
