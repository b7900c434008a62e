"use strict";
// Elements and numbers. Text becomes text nodes and nothing else: names in a record may be anything.

const T = {};

/** el("div.card", {id: "x"}, "text", child): an element with its children; null and false are left out. */
T.el = function (what, attributes, ...children) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "style") Object.assign(element.style, value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== false) element.append(child instanceof Node ? child : String(child));
  }
  return element;
};

/** A word as a shell takes it. */
T.quoted = (word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`);

T.isNumber = (value) => typeof value === "number" && Number.isFinite(value);

/** Four digits; no exponents where people can read the number without. */
T.number = function (value, digits = 4) {
  if (!T.isNumber(value)) return "–";
  const size = Math.abs(value);
  if (value !== 0 && size < 1e-7) return "≈ 0";
  if (value !== 0 && (size < 1e-4 || size >= 1e7)) return value.toExponential(2).replaceAll("-", "−");
  if (size >= 1e4) return Math.round(value).toLocaleString("en-US").replace("-", "−");
  return String(Number(value.toPrecision(digits))).replaceAll("-", "−");
};

/** 160000 -> "160k": numbers of steps on an axis. */
T.steps = function (value) {
  for (const [unit, size] of [["G", 1e9], ["M", 1e6], ["k", 1e3]]) {
    if (Math.abs(value) >= size) return String(Number((value / size).toPrecision(4))) + unit;
  }
  return String(value);
};

T.percent = function (share) {
  if (!T.isNumber(share)) return "–";
  const value = 100 * share;
  return (value === 0 || Math.abs(value) >= 10 ? value.toFixed(0) : String(Number(value.toPrecision(2)))) + " %";
};

// A rate of an event is a share of steps, and read most easily in percent.
T.isShare = (unit) => unit === "rate" || unit === "share";
T.quantity = (value, unit) => (T.isShare(unit) && T.isNumber(value) ? `${T.number(100 * value, 3)} %` : T.number(value));

T.time = function (seconds) {
  if (!T.isNumber(seconds)) return "–";
  const s = Math.round(seconds), h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
  const two = (x) => String(x).padStart(2, "0");
  return h ? `${h}:${two(m)}:${two(s % 60)} h` : `${m}:${two(s % 60)} min`;
};

T.STATES = {
  within: ["✓", "within"], over: ["✕", "over"], unsure: ["≈", "too close to call"], unknown: ["?", "not measured"],
};

T.known = (state) => (Object.hasOwn(T.STATES, state) ? state : "unknown");

T.badge = function (state) {
  const [sign, word] = T.STATES[T.known(state)];
  return T.el(`span.badge.${T.known(state)}`, {}, T.el("span", {"aria-hidden": "true"}, sign), word);
};

/** A colour of the page as it is in the present theme. */
T.css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

T.dark = () => document.documentElement.dataset.theme === "dark";

// Dark lines do not show on dark paper: they are lightened, and keep their hue.
const lightened = new Map();
T.ink = function (colour) {
  if (!T.dark() || typeof colour !== "string" || !/^#[0-9a-f]{6}$/i.test(colour)) return colour;
  if (!lightened.has(colour)) {
    const parts = [1, 3, 5].map((i) => parseInt(colour.slice(i, i + 2), 16));
    const light = (0.3 * parts[0] + 0.59 * parts[1] + 0.11 * parts[2]) / 255;
    const lift = Math.max(0, 0.62 - light);
    lightened.set(colour, "rgb(" + parts.map((p) => Math.round(p + (255 - p) * lift)).join(",") + ")");
  }
  return lightened.get(colour);
};

/** Copies text; where the browser forbids it (a file opened from disk may), by way of a hidden field. */
T.copy = async function (text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const field = T.el("textarea", {style: {position: "fixed", opacity: 0}});
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
  }
  button.textContent = "copied";
  setTimeout(() => { button.textContent = before; }, 1200);
};

T.copyButton = function (text, label = "Copy") {
  const button = T.el("button", {type: "button"}, label);
  button.addEventListener("click", () => T.copy(typeof text === "function" ? text() : text, button));
  return button;
};
